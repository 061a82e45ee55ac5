"""Tables in a folder that any number of shards can load.

A snapshot is a folder: ``manifest.json`` and one safetensors file per table and range of buckets.
It is written into ``<path>.partial-<random>``, by one process or by several shards together; one
publisher writes the manifest last and renames the folder. What carries the final name is therefore
whole, and sizes and checksums tell when it no longer is. At a URL nothing is renamed: the folder is
a snapshot once the manifest is in it. A delta holds the rows that were pushed since its base, which
it names; loading reads the chain from the first base on.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from heterps.errors import SnapshotError
from heterps.ps.bucket_files import (
    COLUMNS,
    read_rows,
    read_tensors,
)
from heterps.ps.manifests import (
    MANIFEST,
    Entry,
    check_bytes,
    check_seal,
    opened,
    read_manifest,
    sealed_name,
    sync,
    write_manifest,
)
from heterps.ps.sharding import BUCKETS, bucket_of
from heterps.storage.places import Place, Url, place

Where = str | os.PathLike[str] | Url


class Store(Protocol):
    """What loading needs of a table."""

    step: int
    committed: int

    def restore(
        self, ids: Any, values: Any, state: Any, frequency: Any, last_seen: Any
    ) -> None: ...

    def restore_pending(self, ids: Any, counts: Any, last_seen: Any) -> None: ...

    def remove(self, ids: Any) -> None: ...


class Base(NamedTuple):
    """What a delta starts from: a published snapshot."""

    path: Place
    identity: str


class Partial:
    """A snapshot being written: leaving the block without ``publish`` removes it."""

    def __init__(self, path: Where) -> None:
        self.path = place(path)
        self.folder = self.path
        if isinstance(self.path, Path):
            name = f"{self.path.name}.partial-{secrets.token_hex(6)}"
            self.folder = self.path.with_name(name)
        self._published = False

    def __enter__(self) -> Self:
        taken = self.path if isinstance(self.path, Path) else self.path / MANIFEST
        if taken.exists():
            raise SnapshotError(self.path, "exists already; a snapshot is never overwritten")
        if isinstance(self.folder, Path):
            try:
                self.folder.mkdir(parents=True)
            except OSError as error:
                problem = f"cannot be written: {error.strerror or error}"
                raise SnapshotError(self.folder, problem) from error
        return self

    def publish(
        self,
        parts: Iterable[Entry],
        base: Base | None = None,
        tensors: Iterable[Entry] = (),
    ) -> str:
        """Give the snapshot its name once all parts are written; its identity."""
        identity = secrets.token_hex(16)
        body: Entry = {"id": identity, "base": None, "tables": _joined(self.path, parts)}
        body["tensors"] = {entry["tensor"]: entry for entry in tensors}
        if base is not None:
            where = os.path.relpath(str(base.path), str(self.path.parent))
            body["base"] = {"path": where, "id": base.identity}
        try:
            write_manifest(self.folder, body)
            if isinstance(self.folder, Path) and isinstance(self.path, Path):
                self.folder.rename(self.path)
                sync(self.path.parent)
        except OSError as error:
            raise SnapshotError(
                self.path, f"cannot be published: {error.strerror or error}"
            ) from error
        self._published = True
        return identity

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(self.folder, Path):
            shutil.rmtree(self.folder, ignore_errors=True)
        elif not self._published:
            self.folder.remove_if_possible()


def _joined(path: Place, parts: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The parts by table; together they have to hold every bucket once, at one batch."""
    tables: dict[str, list[Entry]] = {}
    for part in sorted(parts, key=lambda part: (part["table"], part["buckets"])):
        tables.setdefault(part["table"], []).append(part)
    for name, held in tables.items():
        edges = [0, *(edge for part in held for edge in part["buckets"]), BUCKETS]
        if edges[::2] != edges[1::2]:
            raise SnapshotError(path, f"the parts of table '{name}' leave out or repeat buckets")
        if len({part["committed"] for part in held}) > 1:
            raise SnapshotError(path, f"the parts of table '{name}' are of different batches")
    return tables


@dataclass(frozen=True)
class Snapshot:
    """A published snapshot, its manifest checked; the files are checked as they are read."""

    path: Place
    identity: str
    base: Snapshot | None
    tables: Mapping[str, list[Entry]]
    tensors: Mapping[str, Entry]

    def load(self, name: str, settings: Entry, store: Store, buckets: range) -> None:
        """Put the rows of ``buckets`` into an empty store, with its step and batch.

        Every local file is checked before the first row is restored, every other one before its
        rows are: after an error the store is of no use.
        """
        parts = self.parts_of(name, settings)
        for snapshot in self.chain():
            snapshot._check(name, settings, buckets)
        for snapshot in self.chain():
            snapshot._restore(name, settings, store, buckets)
        ours = [part for part in parts if _overlap(part["buckets"], buckets)]
        for ids, counts, last_seen in self._pending(name, ours, buckets):
            store.restore_pending(ids, counts, last_seen)
        store.step = max(part["step"] for part in ours)
        store.committed = ours[0]["committed"]

    def load_tensor(
        self, name: str, settings: Entry
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], int, Entry]:
        """Values, state, step and settings of a dense tensor, which has to have these settings."""
        if name not in self.tensors:
            raise self._missing("tensor", name, self.tensors)
        entry = self.tensors[name]
        self._compare(f"tensor '{name}'", entry["settings"], settings)
        if isinstance(self.path, Path):
            check_seal(self.path, entry["file"])
        with opened(self.path, entry["file"]) as file:
            arrays = read_tensors(file)
        return arrays["values"], arrays["state"], entry["step"], entry["settings"]

    def verify(self) -> None:
        """Look at every file of this snapshot and its bases. Raises SnapshotError."""
        for snapshot in self.chain():
            snapshot.verify_own()

    def verify_own(self) -> None:
        """Look at every file of this snapshot, and at none of its bases'."""
        for folder, sealed in self._sealed():
            check_seal(self.path / folder if folder else self.path, sealed)

    def verify_sizes(self) -> None:
        """Whether every file of this snapshot is there with its bytes; of use at a URL, where
        reading all of them takes long."""
        assert isinstance(self.path, Url)
        found = self.path.files()
        for folder, sealed in self._sealed():
            name = f"{folder}/{sealed_name(sealed)}" if folder else sealed_name(sealed)
            check_bytes(self.path / name, found.get(name), sealed)

    def _sealed(self) -> Iterator[tuple[str, Entry]]:
        """Every file, with the folder in this one that it is in."""
        for name, parts in self.tables.items():
            for part in parts:
                for sealed in [*part["files"], *([part["extra"]] if part["extra"] else [])]:
                    yield name, sealed
        for entry in self.tensors.values():
            yield "", entry["file"]

    @property
    def rows(self) -> int:
        """How many it holds itself, without its bases."""
        return sum(part["rows"] for parts in self.tables.values() for part in parts)

    def as_base(self) -> Base:
        return Base(self.path, self.identity)

    def chain(self) -> list[Snapshot]:
        """From the first base to this one."""
        return [*(self.base.chain() if self.base else []), self]

    def parts_of(self, name: str, settings: Entry) -> list[Entry]:
        """The parts of a table, which has to have these settings."""
        if name not in self.tables:
            raise self._missing("table", name, self.tables)
        parts = self.tables[name]
        self._compare(f"table '{name}'", parts[0]["settings"], settings)
        return parts

    def _missing(self, what: str, name: str, known: Iterable[str]) -> SnapshotError:
        held = ", ".join(sorted(known)) or "none"
        return SnapshotError(self.path, f"holds no {what} '{name}' (it holds: {held})")

    def _compare(self, what: str, saved: Entry, settings: Entry) -> None:
        for key, value in settings.items():
            if saved.get(key) != value:
                raise SnapshotError(
                    self.path, f"{what} was saved with {key} {saved.get(key)!r}, not {value!r}"
                )

    def _check(self, name: str, settings: Entry, buckets: range) -> None:
        if isinstance(self.path, Url):
            return  # a copy is checked when it is fetched
        for part in self.parts_of(name, settings):
            if _overlap(part["buckets"], buckets):
                needed = [f for f in part["files"] if _overlap(f["buckets"], buckets)]
                for sealed in [*needed, *([part["extra"]] if part["extra"] else [])]:
                    check_seal(self.path / name, sealed)

    def _restore(self, name: str, settings: Entry, store: Store, buckets: range) -> None:
        """Remove what this snapshot removes, then overwrite what it holds."""
        for part in self.parts_of(name, settings):
            if not _overlap(part["buckets"], buckets):
                continue
            removed = self._extra(name, part).get("removed")
            if removed is not None:
                store.remove(_within(removed, buckets))
            for sealed in part["files"]:
                if _overlap(sealed["buckets"], buckets):
                    self._restore_file(name, settings, sealed, store, buckets)

    def _restore_file(
        self, name: str, settings: Entry, sealed: Entry, store: Store, buckets: range
    ) -> None:
        with opened(self.path / name, sealed) as path:
            for block in read_rows(path, range(*sealed["buckets"]), buckets):
                shape = (len(block["ids"]), settings["state_width"])
                block.setdefault("state", np.empty(shape, np.float32))
                store.restore(*(block[column] for column in COLUMNS))

    def _pending(
        self, name: str, parts: Iterable[Entry], buckets: range
    ) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        for part in parts:
            extra = self._extra(name, part)
            if "pending_ids" in extra:
                ours = np.isin(bucket_of(extra["pending_ids"]), np.array(buckets))
                columns = ("pending_ids", "pending_counts", "pending_last_seen")
                yield tuple(extra[column][ours] for column in columns)

    def _extra(self, name: str, part: Entry) -> dict[str, npt.NDArray[Any]]:
        if part["extra"] is None:
            return {}
        with opened(self.path / name, part["extra"]) as path:
            return read_tensors(path)


def open_snapshot(path: Where, *, anew: bool = False) -> Snapshot:
    """The snapshot at a path or URL, and its bases. What a URL has said once is not asked for again
    unless ``anew``: what is there never changes."""
    folder = place(path)
    body = _manifest_of(folder, anew)
    base = None
    if body["base"] is not None:
        base = open_snapshot(folder.parent / body["base"]["path"], anew=anew)
        if base.identity != body["base"]["id"]:
            raise SnapshotError(base.path, f"is not the base that {folder} was made from")
    return Snapshot(folder, body["id"], base, body["tables"], body["tensors"])


_MOST_KNOWN = 256
_known: dict[Url, Entry] = {}


def _manifest_of(folder: Place, anew: bool) -> Entry:
    if isinstance(folder, Path):
        return read_manifest(folder)
    found = None if anew else _known.get(folder)
    if found is None:
        found = read_manifest(folder)
        while len(_known) >= _MOST_KNOWN:
            _known.pop(next(iter(_known)))
        _known[folder] = found
    return found


def _overlap(pair: list[int], buckets: range) -> bool:
    return pair[0] < buckets.stop and buckets.start < pair[1]


def _within(ids: npt.NDArray[np.int64], buckets: range) -> npt.NDArray[np.int64]:
    return ids[np.isin(bucket_of(ids), np.array(buckets))]
