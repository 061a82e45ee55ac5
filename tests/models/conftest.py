import pytest

from heterps.runtime.threads import InThreads


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are slowed down by a second thread, a lot on a busy machine."""
    with InThreads(1):
        yield
