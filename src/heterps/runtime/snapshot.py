"""Snapshots of a whole run: what it takes to go on, under this plan or another.

```text
RUN/snapshots/step-00001200/
    dense.safetensors   weights by layer, the optimizer's state of each, and metrics so far
    tables/             the rows of the parameter servers, by bucket: all of them, or what
                        changed since the snapshot before
    manifest.json       step, lanes, metrics of validations, sizes and checksums; written last
```

Or at a URL, which ``snapshot.to`` of the job names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heterps.errors import InputError, SnapshotError
from heterps.job.spec import Job
from heterps.ps.snapshots import Snapshot as TablesSnapshot
from heterps.ps.snapshots import open_snapshot
from heterps.runtime.identity import Identity, claim, withdraw
from heterps.runtime.saved_model import TABLES, load_dense, read_manifest
from heterps.runtime.shelves import SaveTables, make_shelf, mark_of, step_of
from heterps.storage.places import Place, Url, place

SNAPSHOTS = "snapshots"
RECENT = "progress/recent"  # among the weights: what progressive metrics are made of
MOST_DELTAS = 24
DELTA_ROWS = 4  # times those of their base: what a run that goes on may have to read


@dataclass(frozen=True)
class RunSnapshot:
    """A whole one. ``about`` is what the coordinator needs to go on."""

    path: Place
    about: Mapping[str, Any]

    @property
    def step(self) -> int:
        """The next batch."""
        return int(self.about["step"])

    @property
    def tables(self) -> Place:
        return self.path / TABLES

    def state(self) -> dict[str, Tensor]:
        return load_dense(self.path)


def snapshots_folder(run: Path, job: Job) -> Place:
    """Where the snapshots of a run go. Raises InputError for a URL that names no folder."""
    own = job.snapshot
    if own.to is None:
        return run / SNAPSHOTS
    return _place(job, job.path(own.to)) / (own.name or run.absolute().name)


def _place(job: Job, where: str) -> Place:
    options = job.data.storage if job.data is not None else {}
    return place(where, options, job.snapshot.patience_s)


class Snapshots:
    """Those of one run; the last ``keep`` are kept. ``run_id`` tells them from those of others
    at a URL."""

    def __init__(
        self,
        run: Path,
        keep: int = 3,
        folder: Place | None = None,
        run_id: str | None = None,
        earlier: Callable[[], list[Snapshots]] = list,
    ) -> None:
        """``earlier`` gives those of the same run in places that it has left, as long as this one
        has none that is whole."""
        self.folder = folder or run / SNAPSHOTS
        self._run = run
        self._keep = keep
        self._id = run_id
        self._earlier = earlier
        self._shelf = make_shelf(self.folder, mark_of(run_id) if run_id else None)

    @classmethod
    def of(cls, run: Path, job: Job, run_id: str | None = None) -> Snapshots:
        """``run_id`` is that of a run whose folder does not hold it yet."""
        found = Identity.of(run)
        own = run_id or (found.id if found else None)
        here = snapshots_folder(run, job)

        def earlier() -> list[Snapshots]:
            known = Identity.of(run)
            names = known.earlier if known else ()
            places = [run / SNAPSHOTS if name is None else _place(job, name) for name in names]
            return [cls(run, job.snapshot.keep, at, own) for at in places if at != here]

        return cls(run, job.snapshot.keep, here, own, earlier)

    @property
    def are_remote(self) -> bool:
        return isinstance(self.folder, Url)

    def paths(self) -> list[Any]:
        """Their places, the newest first, whole or not."""
        return self._shelf.places()

    def everywhere(self) -> list[Snapshots]:
        """Here, and where they were before."""
        return [self, *self._earlier()]

    @property
    def last_step(self) -> int | None:
        """Of the newest, whole or not, wherever it is."""
        return next((step_of(path) for path in self._all_paths()), None)

    def _all_paths(self) -> list[Any]:
        paths = [path for held in self.everywhere() for path in held.paths()]
        return sorted(paths, key=step_of, reverse=True)

    def claim(self, *, again: bool = False) -> bool:
        """Makes the place the run's own, unless it is in the run folder; whether it was not before.
        Raises InputError if it is another one's, or nothing can be written. ``again`` for where the
        run was before."""
        if self.folder == self._run / SNAPSHOTS:
            return False
        assert self._id is not None, "a run has an id before it claims a place"
        return claim(self._shelf, self._id, self._run, again=again)

    def withdraw(self) -> None:
        """Gives up a claimed place in which nothing was published."""
        if self.folder != self._run / SNAPSHOTS and self._id is not None:
            withdraw(self.folder, self._id)

    def follow(self, before: Snapshots) -> None:
        """The run goes on from ``before`` until one is whole here. Written down, as nobody else
        knows when this process has ended."""
        known = Identity.of(self._run)
        assert known is not None
        names = dict.fromkeys([*known.earlier, before._name()])
        names.pop(self._name(), None)
        replace(known, earlier=tuple(names)).write(self._run)

    def _name(self) -> str | None:
        if self.folder == self._run / SNAPSHOTS:
            return None
        return str(self.folder if isinstance(self.folder, Url) else self.folder.absolute())

    def _forget_earlier(self) -> None:
        """Without room on the disk of the run folder they are looked through once more."""
        with contextlib.suppress(InputError):
            known = Identity.of(self._run)
            if known is not None and known.earlier:
                replace(known, earlier=()).write(self._run)

    def newest(
        self, said: Callable[[str], None] = lambda line: None, *, thorough: bool = False
    ) -> RunSnapshot | None:
        """The newest that can be loaded, wherever it is; ``said`` gets a line for each damage on
        the way. At a URL the contents of tables are not read for that, since servers check what
        they load, unless it is to be ``thorough``."""
        check, problems = Check(thorough=thorough), dict[str, None]()
        found = None
        for path in self._all_paths():
            try:
                found = check(path)
                break
            except SnapshotError as error:
                problems[str(error)] = None
        instead = f"going on from {found.path.name}" if found else "there is none before it"
        for problem in problems:
            said(f"{problem}; {instead}")
        return found

    def set_aside_after(self, step: int) -> None:
        """Those that a run does not go on from, though they are newer: damaged ones. They would be
        in the way of what it writes, and are kept under another name."""
        for path in self.paths():
            if step_of(path) > step:
                self._shelf.set_aside(path)

    def write(
        self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any], tables: SaveTables
    ) -> Any:
        """Publishes a snapshot once it is whole, and lets go of the oldest; its place."""
        path = self._shelf.write(step, state, {**about, "step": step}, tables)
        self._forget_earlier()
        self._let_go(path)
        return path

    def _let_go(self, last: Place) -> None:
        """Of the oldest, but not of the bases of those that are kept. When these have one base
        between them, the newest that has another is kept too, in case it is damaged. What cannot
        be read is not counted, and goes when it is older than all that are kept."""
        try:
            there = self.paths()
            chains = _chains([path for path in there if _counts(path, last)])
        except InputError:
            return
        if last not in chains:
            return
        paths = list(chains)
        kept = paths[: self._keep]
        firsts = {chains[path][0] for path in kept}
        if len(kept) > 1 and len(firsts) == 1:
            kept += [path for path in paths if chains[path][0] not in firsts][:1]
        needed = {held for path in kept for held in chains[path]}
        oldest = min(step_of(path) for path in needed)
        for path in there:
            readable = path in chains or not _counts(path, last)
            if _real(path) not in needed and (readable or step_of(path) < oldest):
                self._shelf.remove(path)
        if self.are_remote:
            self.sweep()  # a server may have gone on writing to one that was given up

    def sweep(self) -> None:
        """Removes what was being written when its writer was killed."""
        self._shelf.sweep()

    def size_bytes(self, path: Place) -> int:
        return self._shelf.size_bytes(path)


def _counts(path: Place, last: Place) -> bool:
    """Whether it is not one of the step of the last, written before: a URL has both."""
    return path == last or step_of(path) != step_of(last)


def _real(path: Place) -> Place:
    return path.resolve() if isinstance(path, Path) else path


def _chains(paths: Iterable[Place]) -> dict[Place, list[Place]]:
    """By snapshot, in this order, without those that are damaged."""
    found = {}
    for path in paths:
        with contextlib.suppress(SnapshotError):
            found[path] = _chain(path)
    return found


def _chain(path: Place) -> list[Place]:
    """The snapshots that one consists of, from its first base on."""
    return [_real(held.path).parent for held in open_snapshot(path / TABLES).chain()]


def next_base(tables: Place) -> Place | None:
    """What the snapshot after one with these tables may be a delta of; None when it is time for a
    whole one."""
    try:
        first, *deltas = open_snapshot(tables).chain()
    except (SnapshotError, InputError):
        return None
    many = sum(delta.rows for delta in deltas) > DELTA_ROWS * first.rows
    return None if many or len(deltas) >= MOST_DELTAS else tables


def base_of(path: Place) -> str | None:
    """The name of the snapshot that this one is a delta of; None as well where it cannot be
    read."""
    try:
        base = open_snapshot(path / TABLES).base
    except SnapshotError:
        return None
    return _real(base.path).parent.name if base is not None else None


class Check:
    """Reads snapshots, and each file once, however many are deltas of the same base. Unless it is
    ``thorough``, of the rows at a URL only the sizes of files are looked at."""

    def __init__(self, *, thorough: bool = True) -> None:
        self._thorough = thorough
        self._found: dict[Place, SnapshotError | None] = {}

    def __call__(self, path: Place) -> RunSnapshot:
        """A snapshot whose every file is as it was written. Raises SnapshotError."""
        about = read_manifest(path)
        if not isinstance(about.get("step"), int):
            raise SnapshotError(path, "does not say at which step it was taken")
        for tables in open_snapshot(path / TABLES, anew=True).chain():
            self._check(tables)
        return RunSnapshot(path, about)

    def _check(self, tables: TablesSnapshot) -> None:
        where = _real(tables.path)
        if where not in self._found:
            self._found[where] = None
            try:
                if self._thorough or isinstance(where, Path):
                    tables.verify_own()
                else:
                    tables.verify_sizes()
            except SnapshotError as error:
                self._found[where] = error
        if (problem := self._found[where]) is not None:
            raise problem


def verified(path: Place) -> RunSnapshot:
    """A snapshot whose every file, and every one of its bases, is as it was written. Raises
    SnapshotError."""
    return Check()(path)
