import os
import subprocess
import sys

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


# As a batch does: several tensors at a time, all freed at its end.
_BATCHES = """
import resource
import numpy as np

def batch():
    kept = [np.ones(1 << 20) for _ in range(8)]

batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(**more: str) -> int:
    environment = {**os.environ, **ProcessSpec("one", "module").variables(), **more}
    command = [sys.executable, "-c", _BATCHES]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def test_memory_that_a_batch_has_freed_is_there_for_the_next():
    given_back = _page_faults(MALLOC_TRIM_THRESHOLD_=str(1 << 17), MALLOC_MMAP_THRESHOLD_="65536")
    assert _page_faults() < given_back / 10


def test_what_a_person_has_set_for_memory_stays(monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "4096")
    assert ProcessSpec("one", "module").variables()["MALLOC_TOP_PAD_"] == "4096"
