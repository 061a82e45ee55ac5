import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are slowed down by a second thread, a lot on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
