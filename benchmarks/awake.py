"""Cores that do not fall asleep while something is measured.

A core that has nothing to do sleeps more deeply the longer that lasts, and what it does next takes
longer, by half and more on a virtual machine. Units of emulated types idle most of the time, so
without this the CPU time of their work would depend on how many others are at work.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def awake() -> Iterator[None]:
    """A process for each core that turns in circles whenever nobody else wants it."""
    cores = sorted(os.sched_getaffinity(0))
    turning = [subprocess.Popen([sys.executable, __file__, str(core)]) for core in cores]
    try:
        yield
    finally:
        for each in turning:
            each.kill()
            each.wait()


def turn(core: int) -> None:
    """Until the process that began it is gone."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # Where the kernel shares cores out between sessions first, being idle counts within one's own
    # session only; so this one has its own, and next to no share.
    os.setsid()
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


if __name__ == "__main__":
    turn(int(sys.argv[1]))
