"""Snapshots of a whole run: what it takes to go on, under this plan or another.

```text
RUN/snapshots/step-00001200/
    dense.safetensors   weights by layer, and the optimizer's state of each
    tables/             the rows of the parameter servers, by bucket
    manifest.json       step, lanes, metrics so far, sizes and checksums; written last
```
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heterps.errors import HeterPSError, SnapshotError
from heterps.ps.snapshots import open_snapshot
from heterps.runtime.saved_model import TABLES, load_dense, read_manifest, save_dense, saving

SNAPSHOTS = "snapshots"
_PREFIX = "step-"


@dataclass(frozen=True)
class RunSnapshot:
    """A whole one. ``about`` is what the coordinator needs to go on."""

    path: Path
    about: Mapping[str, Any]

    @property
    def step(self) -> int:
        """The next batch."""
        return int(self.about["step"])

    @property
    def tables(self) -> Path:
        return self.path / TABLES

    def state(self) -> dict[str, Tensor]:
        return load_dense(self.path)


class Snapshots:
    """Those of one run; the last ``keep`` are kept."""

    def __init__(self, run: Path, keep: int = 3) -> None:
        self.folder = run / SNAPSHOTS
        self._keep = keep

    def paths(self) -> list[Path]:
        """The newest first, whole or not."""
        return sorted(self.folder.glob(f"{_PREFIX}*[0-9]"), reverse=True)

    def newest(self, said: Callable[[str], None] = lambda line: None) -> RunSnapshot | None:
        """The newest that can be loaded; ``said`` gets a line for each that cannot."""
        for path in self.paths():
            try:
                return verified(path)
            except HeterPSError as error:
                said(f"{error}; taking the one before")
        return None

    def write(
        self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any], tables: SaveTables
    ) -> Path:
        """Publishes a snapshot once it is whole, and lets go of the oldest."""
        path = self.folder / f"{_PREFIX}{step:08d}"
        with saving(path, {**about, "step": step}) as folder:
            save_dense(folder, state)
            tables(folder / TABLES)
        for old in self.paths()[self._keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return path


SaveTables = Callable[[Path], None]


def verified(path: Path) -> RunSnapshot:
    """A snapshot whose every file is as it was written. Raises SnapshotError."""
    about = read_manifest(path)
    if not isinstance(about.get("step"), int):
        raise SnapshotError(path, "does not say at which step it was taken")
    open_snapshot(path / TABLES).verify()
    return RunSnapshot(path, about)


class Writer:
    """Writes in a thread of its own, one snapshot at a time, while training goes on."""

    def __init__(self, done: Callable[[Mapping[str, Any]], None]) -> None:
        self._done = done
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], Mapping[str, Any]]) -> None:
        """Waits for the one before."""
        self.finish()
        self._thread = threading.Thread(target=self._run, args=(work,), name="snapshot")
        self._thread.start()

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, work: Callable[[], Mapping[str, Any]]) -> None:
        try:
            self._done(work())
        except (HeterPSError, OSError) as error:
            # A full disk stops the snapshot, not the training.
            self._done({"error": str(error)})
