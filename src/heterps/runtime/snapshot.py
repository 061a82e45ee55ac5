"""Snapshots of a whole run: what it takes to go on, under this plan or another.

```text
RUN/snapshots/step-00001200/
    dense.safetensors   weights by layer, the optimizer's state of each, and metrics so far
    tables/             the rows of the parameter servers, by bucket: all of them, or what
                        changed since the snapshot before
    manifest.json       step, lanes, metrics of validations, sizes and checksums; written last
```
"""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heterps.errors import HeterPSError, SnapshotError
from heterps.ps.snapshots import Snapshot as TablesSnapshot
from heterps.ps.snapshots import open_snapshot
from heterps.runtime.saved_model import TABLES, load_dense, read_manifest, save_dense, saving

SNAPSHOTS = "snapshots"
RECENT = "progress/recent"  # among the weights: what progressive metrics are made of
_PREFIX = "step-"
MOST_DELTAS = 24
DELTA_ROWS = 4  # times those of their base: what a run that goes on may have to read


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

    @property
    def last_step(self) -> int | None:
        """Of the newest, whole or not."""
        return next((_step_of(path) for path in self.paths()), None)

    def newest(self, said: Callable[[str], None] = lambda line: None) -> RunSnapshot | None:
        """The newest that can be loaded; ``said`` gets a line for each damage on the way."""
        check, problems = Check(), dict[str, None]()
        found = None
        for path in self.paths():
            try:
                found = check(path)
                break
            except HeterPSError as error:
                problems[str(error)] = None
        instead = f"going on from {found.path.name}" if found else "there is none before it"
        for problem in problems:
            said(f"{problem}; {instead}")
        return found

    def set_aside_after(self, step: int) -> None:
        """Those that a run does not go on from, though they are newer: damaged ones. They would be
        in the way of what it writes, and are kept under another name."""
        for path in self.paths():
            if _step_of(path) > step:
                aside = path.with_name(f"{path.name}.damaged")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)

    def write(
        self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any], tables: SaveTables
    ) -> Path:
        """Publishes a snapshot once it is whole, and lets go of the oldest."""
        path = self.folder / f"{_PREFIX}{step:08d}"
        with saving(path, {**about, "step": step}) as folder:
            save_dense(folder, state)
            tables(folder / TABLES)
        self._let_go()
        return path

    def _let_go(self) -> None:
        """Of the oldest, but not of the bases of those that are kept. When these have one base
        between them, the newest that has another is kept too, in case it is damaged."""
        paths = self.paths()
        try:
            chains = {path: _chain(path) for path in paths}
        except SnapshotError:
            return  # a damaged one does not say what it needs
        kept = paths[: self._keep]
        firsts = {chains[path][0] for path in kept}
        if len(kept) > 1 and len(firsts) == 1:
            kept += [path for path in paths if chains[path][0] not in firsts][:1]
        needed = {held for path in kept for held in chains[path]}
        for path in paths:
            if path.resolve() not in needed:
                shutil.rmtree(path, ignore_errors=True)

    def sweep(self) -> None:
        """Removes what was being written when its writer was killed."""
        for partial in self.folder.glob(f"{_PREFIX}*.partial-*"):
            shutil.rmtree(partial, ignore_errors=True)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix(_PREFIX))


SaveTables = Callable[[Path], None]


def _chain(path: Path) -> list[Path]:
    """The snapshots that one consists of, from its first base on."""
    return [held.path.resolve().parent for held in open_snapshot(path / TABLES).chain()]


def next_base(tables: Path) -> Path | None:
    """What the snapshot after one with these tables may be a delta of; None when it is time for a
    whole one."""
    try:
        first, *deltas = open_snapshot(tables).chain()
    except SnapshotError:
        return None
    many = sum(delta.rows for delta in deltas) > DELTA_ROWS * first.rows
    return None if many or len(deltas) >= MOST_DELTAS else tables


def base_of(path: Path) -> str | None:
    """The name of the snapshot that this one is a delta of; None as well where it cannot be
    read."""
    try:
        base = open_snapshot(path / TABLES).base
    except SnapshotError:
        return None
    return base.path.resolve().parent.name if base is not None else None


class Check:
    """Reads snapshots, and each file once, however many are deltas of the same base."""

    def __init__(self) -> None:
        self._found: dict[Path, SnapshotError | None] = {}

    def __call__(self, path: Path) -> RunSnapshot:
        """A snapshot whose every file is as it was written. Raises SnapshotError."""
        about = read_manifest(path)
        if not isinstance(about.get("step"), int):
            raise SnapshotError(path, "does not say at which step it was taken")
        for tables in open_snapshot(path / TABLES).chain():
            self._check(tables)
        return RunSnapshot(path, about)

    def _check(self, tables: TablesSnapshot) -> None:
        where = tables.path.resolve()
        if where not in self._found:
            self._found[where] = None
            try:
                tables.verify_own()
            except SnapshotError as error:
                self._found[where] = error
        if (problem := self._found[where]) is not None:
            raise problem


def verified(path: Path) -> RunSnapshot:
    """A snapshot whose every file, and every one of its bases, is as it was written. Raises
    SnapshotError."""
    return Check()(path)


class Writer:
    """Writes in a thread of its own, one snapshot at a time, while training goes on."""

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], Mapping[str, Any]]) -> None:
        """Not while it is busy."""
        assert not self.busy
        self._thread = threading.Thread(target=self._run, args=(work,), name="snapshot")
        self._thread.start()

    def finish(self) -> None:
        """Waits."""
        if self._thread is not None:
            self._thread.join()

    def outcomes(self) -> Iterator[Mapping[str, Any]]:
        """What came of those that have ended since the last call; of a failed one its ``error``."""
        while not self._outcomes.empty():
            yield self._outcomes.get()

    def _run(self, work: Callable[[], Mapping[str, Any]]) -> None:
        try:
            self._outcomes.put(work())
        except (HeterPSError, OSError) as error:
            # A full disk stops the snapshot, not the training.
            self._outcomes.put({"error": str(error)})
