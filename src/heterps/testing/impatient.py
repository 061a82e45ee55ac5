"""Workers that do not wait long for the servers of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heterps.data import dataset
from heterps.job.data import DataSpec
from heterps.runtime.engines.base import ProcessSpec
from heterps.storage.access import Storage
from heterps.storage.patience import Patience
from heterps.testing.forking import ForkedHandle, ForkEngine


def impatient(total_s: float) -> Callable[[Path], ForkEngine]:
    """Engines of such workers."""
    return lambda folder: _Impatient(folder, total_s)


class _Impatient(ForkEngine):
    def __init__(self, folder: Path, total_s: float) -> None:
        super().__init__(folder)
        self._total_s = total_s

    def start(self, spec: ProcessSpec) -> ForkedHandle:
        return self.start_after(spec, _hurry, self._total_s)


def _hurry(total_s: float) -> None:
    def storage_of(spec: DataSpec, _base: str) -> Storage:
        return Storage(spec.storage, patience=Patience(total_s))

    vars(dataset)["storage_of"] = storage_of
