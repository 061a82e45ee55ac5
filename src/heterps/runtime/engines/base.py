"""What every engine offers. `heterps.testing.engines` has the checks that all of them pass."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from heterps.errors import InputError, ProcessError
from heterps.processes import ending

GRACE_S = 10.0
LOGS = "logs"  # in the run folder
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOOK_EVERY_S = 0.02
# What the libraries that compute ask for the number of their threads.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_WAITING_VARIABLES = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "100000"}
# What a batch has freed stays with the process for the next one, up to 256 MiB: the C library
# would give it back, and every page of it would be asked for and cleared anew a moment later.
_MEMORY_VARIABLES = {
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # as far as the library goes by itself
    "MALLOC_TOP_PAD_": str(16 << 20),
}


@dataclass(frozen=True)
class ProcessSpec:
    """A Python module that runs as a process of a run, under a name that is its own there.

    ``environment`` is added to what the engine's processes have anyway; no secrets, since others
    on the machine may read it: a process that asks `heterps.parent.handed_secret` gets
    ``secret``. ``threads`` is how many it computes with.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError("name", f"expected letters, digits, '.', '_', '-'; got '{self.name}'")
        if self.threads < 1:
            raise InputError("threads", f"expected at least 1, got {self.threads}")

    def variables(self) -> dict[str, str]:
        """The environment, with the number of threads; what was given for it explicitly stays.

        Threads that wait for each other turn in circles for about a millisecond, which the gaps
        between the operations of a model are shorter than, and then sleep: turning for longer they
        would keep the cores from the servers, and to be woken on a virtual machine takes as long as
        a small operation. A worker of two threads beside a server trained batches of 512 about a
        tenth faster than with 50 µs here (3 and 4 rounds); at 4096 it made no clear difference.
        """
        usual = {**_WAITING_VARIABLES, **_MEMORY_VARIABLES}
        own = {name: os.environ.get(name) or value for name, value in usual.items()}
        threads = dict.fromkeys(_THREAD_VARIABLES, str(self.threads))
        return {**threads, **own, **self.environment}


class Site(NamedTuple):
    """Where a process is going to be: the address of its host, by which those on other hosts reach
    it, and a folder there that it may write to."""

    host: str
    folder: Path


class Handle(ABC):
    """A process that an engine has started."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """A file in the folder of its site; None while there is none."""

    @abstractmethod
    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""

    @abstractmethod
    def stop(self, grace_s: float = GRACE_S) -> int:
        """Asks it to end (SIGTERM), ends it after the grace, and gives its exit code. What it has
        started itself ends too. Stopping what has ended does nothing."""

    def stopped(self) -> bool:
        """Whether the system says that it is held, as by SIGSTOP; not, where that is not known."""
        return False

    def wants_to_run(self) -> bool:
        """Whether the system says that it would run if it could: others have the processors, or it
        waits for the disk. Not, where that is not known."""
        return False

    @abstractmethod
    def last_words(self, lines: int = 3) -> str:
        """The end of what it wrote to its output, in one line."""

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Raises ProcessError with its last words when it ends before it is ready, or takes longer
        than that."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            code = self.poll()
            if code is not None:
                problem = f"{ending(code)} at its start: {self.last_words()}"
                raise ProcessError(self.spec.name, problem, "ended" if code < 0 else "wrong")
            if time.monotonic() >= deadline:
                problem = f"was not ready in {timeout_s:g} s: {self.last_words()}"
                raise ProcessError(self.spec.name, problem, "stuck")
            time.sleep(_LOOK_EVERY_S)


class Engine(ABC):
    """Starts processes and answers for their end: after ``close``, and when the process that holds
    the engine dies in any way, none of them is left, nor anything that they have started.

    The output of each is kept in the run folder under the process's name. ``host`` is the address
    of the host that this process is on, for others of the same run.
    """

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        """``folder`` is the run's, which has to be there."""
        self.folder = folder

    def place(self, units: Mapping[str, str]) -> dict[str, Site]:
        """Makes room for processes, each by its name on a unit of a resource type (``""``: of none
        in particular), for all of them or none, before they are started. Raises NoRoomError when
        they are more than there is."""
        return dict.fromkeys(units, Site(self.host, self.folder))

    @property
    def wait_s(self) -> float:
        """How long units that have gone may take to come back, or others in their place."""
        return 0.0

    def look_again(self, after_s: float) -> None:
        """Where nothing is placed: `limits` then tells what there is by that time."""
        time.sleep(after_s)

    @property
    def cores(self) -> int:
        """Of all hosts that processes may run on."""
        return len(os.sched_getaffinity(0))

    def limits(self, units: Mapping[str, str]) -> Mapping[str, int]:
        """How many units of each resource type there are, with room for these processes before
        others; a type that is not named has as many as the job says. Fewer than these processes
        are of a type: they have no room together."""
        return {}

    @abstractmethod
    def start(self, spec: ProcessSpec) -> Handle:
        """Returns at once. Raises InputError for a name that runs already, and ProcessError when
        there is no such module or place."""

    def admitted(self, spec: ProcessSpec, running: Handle | None, *, closed: bool) -> Path:
        """Where the output of a process that may be started goes; raises what ``start`` does.
        ``running`` is the last that had its name."""
        if closed:
            raise ProcessError(spec.name, "was not started: the engine is closed")
        if running is not None and running.poll() is None:
            raise InputError("name", f"a process '{spec.name}' is running")
        if not _exists(spec.module):
            raise ProcessError(spec.name, f"was not started: no module '{spec.module}'")
        logs = self.folder / LOGS
        logs.mkdir(parents=True, exist_ok=True)
        return logs / f"{spec.name}.log"

    @abstractmethod
    def close(self, grace_s: float = GRACE_S) -> None:
        """Stops all processes together, and starts no more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
