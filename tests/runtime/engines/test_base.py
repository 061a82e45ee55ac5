import pytest

from heterps.errors import InputError
from heterps.runtime.engines.base import ProcessSpec


@pytest.mark.parametrize("name", ["", "../up", "a/b", "with space", "-x", "x" * 101])
def test_a_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(InputError, match="name: "):
        ProcessSpec(name, "module")


def test_threads_are_at_least_one():
    with pytest.raises(InputError, match="threads: expected at least 1, got 0"):
        ProcessSpec("one", "module", threads=0)


def test_threads_that_the_environment_names_stay():
    spec = ProcessSpec("one", "module", threads=2, environment={"MKL_NUM_THREADS": "1"})
    assert spec.variables()["OMP_NUM_THREADS"] == "2"
    assert spec.variables()["MKL_NUM_THREADS"] == "1"
