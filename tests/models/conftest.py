import pytest

from heterps.testing.threads import computing_with


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small are slowed down by a second thread, a lot on a busy machine."""
    with computing_with(1):
        yield
