"""Files that arrive in a folder while a run goes on: which of them form the next arrival.

A file counts once a marker stands beside it: ``<name>.done``, written after it. An arrival is what
has a marker and was in no arrival before, by name; it is written down before it is used, with the
version of each file, so that a run that goes on after a failure reads the same files in the same
arrivals. A file ``_END`` says that no more will come.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heterps.data.source import SUFFIXES, names_in, versions_in
from heterps.errors import InputError
from heterps.job.data import DataSpec
from heterps.storage.access import Storage

MARKER, END = ".done", "_END"


def next_arrival(names: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    """Of the names in a folder, those that are to be read next; ``taken`` were read before."""
    there = set(names)
    data = (name for name in there if name.endswith(SUFFIXES) and name[0] not in "._")
    return tuple(sorted({name for name in data if f"{name}{MARKER}" in there} - set(taken)))


def names_followed(spec: DataSpec, base: str = "") -> list[str]:
    """All that is in the folder that is followed, now. Raises InputError."""
    return names_in(spec.train[0], "data.train", base, Storage(spec.storage))


def only(spec: DataSpec, names: Sequence[str]) -> DataSpec:
    """The files of one arrival as data that do not grow."""
    folder = spec.train[0].rstrip("/")
    paths = tuple(f"{folder}/{name}" for name in names)
    return spec.model_copy(update={"train": paths, "follow": None})


def as_found(spec: DataSpec, base: str = "") -> DataSpec:
    """What there is to train on now; data that do not grow stay what they are. Raises InputError
    where nothing has arrived.
    """
    if spec.follow is None:
        return spec
    names = next_arrival(names_followed(spec, base), ())
    if not names:
        problem = f"nothing has arrived in '{spec.train[0]}' yet"
        raise InputError("data.train", f"{problem}: a file counts once <name>{MARKER} is beside it")
    return only(spec, names)


def check_unchanged(spec: DataSpec, arrival: Arrival, base: str = "") -> None:
    """Raises InputError for a file that is another by now than when it arrived. One that is gone is
    left to whoever opens it.
    """
    if not arrival.versions:
        return
    names, folder = arrival.names, spec.train[0]
    now = versions_in(folder, set(names), "data.train", base, Storage(spec.storage))
    for name, before in zip(names, arrival.versions, strict=True):
        if now.get(name, before) != before:
            problem = f"has been replaced since it arrived (version {before}, now {now[name]})"
            kept = "put back what was there (a copy keeps its time with `cp -p` or `touch -r`)"
            advice = f"{kept}, or begin a new run with warm_start"
            raise InputError(only(spec, [name]).train[0], f"{problem}: {advice}")


@dataclass(frozen=True)
class Arrival:
    """The ``number``-th, counted from 0: an epoch of its own."""

    number: int
    names: tuple[str, ...]
    samples: int
    versions: tuple[str, ...] = field(default=(), compare=False)
    """Of each file; none in records of earlier builds, which go unchecked."""


class Arrivals:
    """The arrivals of a run, written down in a file, a line for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = _read(path)

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, number: int) -> Arrival:
        return self._held[number]

    @property
    def taken(self) -> list[str]:
        return [name for arrival in self._held for name in arrival.names]

    def record(self, names: Sequence[str], samples: int, versions: Sequence[str] = ()) -> Arrival:
        """The next arrival, on the disk once this returns."""
        arrival = Arrival(len(self._held), tuple(names), samples, tuple(versions))
        self._write([*self._held, arrival])
        self._held.append(arrival)
        return arrival

    def documents(self, count: int) -> list[dict[str, Any]]:
        """The first ``count`` of them, for a snapshot."""
        return [_document(arrival) for arrival in self._held[:count]]

    def take_over(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Those that a snapshot names, where the file does not have them, as on another machine.
        Raises InputError where it has others.
        """
        given = [_arrival(self._path, n, json.dumps(held)) for n, held in enumerate(documents)]
        if self._held[: len(given)] != given[: len(self._held)]:
            raise InputError(str(self._path), "has other arrivals than the snapshot: remove it")
        if len(given) > len(self._held):
            self._write(given)
            self._held = given

    def _write(self, arrivals: Sequence[Arrival]) -> None:
        """Whole or not at all."""
        partial = self._path.with_name(f".{self._path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            for arrival in arrivals:
                file.write(json.dumps(_document(arrival)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)


def _document(arrival: Arrival) -> dict[str, Any]:
    said = {"arrival": arrival.number, "files": arrival.names, "samples": arrival.samples}
    return said | ({"versions": arrival.versions} if arrival.versions else {})


def _read(path: Path) -> list[Arrival]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_arrival(path, number, line) for number, line in enumerate(lines)]


def _arrival(path: Path, number: int, line: str) -> Arrival:
    try:
        entry: dict[str, Any] = json.loads(line)
        if entry["arrival"] != number:
            raise ValueError
        files = tuple(map(str, entry["files"]))
        versions = tuple(map(str, entry.get("versions", ())))
        if versions and len(versions) != len(files):
            raise ValueError
        return Arrival(number, files, int(entry["samples"]), versions)
    except (ValueError, KeyError, TypeError):
        problem = f"line {number + 1} is no record of an arrival"
        raise InputError(str(path), f"{problem}: has it been edited?") from None
