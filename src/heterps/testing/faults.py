"""Processes of a run that are killed or stopped while it goes on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.errors import StoreError
from heterps.ps.table import SparseTable
from heterps.runtime.engines.base import ProcessSpec
from heterps.runtime.progress import Status
from heterps.testing.forking import ForkedHandle, ForkEngine


@dataclass(frozen=True)
class Fault:
    """What happens to the process of that name some time after a step has been reached."""

    process: str
    step: int
    signal: int = signal.SIGKILL
    after_s: float = 0.0


class Faults:
    """Gives a run its engine and hears its reports; each fault happens once, in their order."""

    def __init__(self, *faults: Fault) -> None:
        self._left = list(faults)
        self._engine: _Engine | None = None
        self.done: list[Fault] = []

    def engine(self, folder: Path) -> ForkEngine:
        self._engine = _Engine(folder)
        return self._engine

    def report(self, status: Status) -> None:
        if self._left and status.step >= self._left[0].step:
            fault = self._left.pop(0)
            self.done.append(fault)
            threading.Timer(fault.after_s, self._act, [fault]).start()

    def _act(self, fault: Fault) -> None:
        assert self._engine is not None
        self._engine.signal(fault.process, fault.signal)


class _Engine(ForkEngine):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._named: dict[str, ForkedHandle] = {}

    def start(self, spec: ProcessSpec) -> ForkedHandle:
        self._named[spec.name] = super().start(spec)
        return self._named[spec.name]

    def signal(self, name: str, number: int) -> None:
        handle = self._named.get(name)  # a run that starts again may not have it yet
        with suppress(ProcessLookupError):
            if handle is not None and handle.poll() is None:
                os.kill(handle.pid, number)


def dying_engine(process: str, times: int) -> Callable[[Path], ForkEngine]:
    """Engines that kill the process of that name as soon as it is started, the first ``times``."""
    left = [times]
    return lambda folder: _Dying(folder, process, left)


class _Dying(ForkEngine):
    def __init__(self, folder: Path, process: str, left: list[int]) -> None:
        super().__init__(folder)
        self._process = process
        self._left = left

    def start(self, spec: ProcessSpec) -> ForkedHandle:
        handle = super().start(spec)
        if spec.name == self._process and self._left[0]:
            self._left[0] -= 1
            os.kill(handle.pid, signal.SIGKILL)
        return handle


def full_disk_engine(micro_batch: int) -> Callable[[Path], ForkEngine]:
    """Engines whose servers have no room for the gradients of a micro-batch."""
    return lambda folder: _FullDisk(folder, micro_batch)


class _FullDisk(ForkEngine):
    def __init__(self, folder: Path, micro_batch: int) -> None:
        super().__init__(folder)
        self._micro_batch = micro_batch

    def start(self, spec: ProcessSpec) -> ForkedHandle:
        return self.start_after(spec, _without_room, self._micro_batch)


def _without_room(full: int) -> None:
    """In the process itself."""
    takes = SparseTable.accumulate

    def accumulate(
        self: SparseTable, batch: int, part: tuple[int, int], ids: Any, grads: Any
    ) -> bool:
        if part[0] == full:
            raise StoreError("cold file: No space left on device")
        return takes(self, batch, part, ids, grads)

    SparseTable.accumulate = accumulate  # type: ignore[method-assign]


def names_of(replicas: Sequence[int], servers: int) -> list[str]:
    """The processes of a run with so many replicas in its stages."""
    workers = [f"stage-{s}-replica-{r}" for s, units in enumerate(replicas) for r in range(units)]
    return [*workers, *(f"server-{shard}" for shard in range(servers))]
