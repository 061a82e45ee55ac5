"""Files that arrive while a run goes on: which of them form the next arrival.

A file counts once a marker stands beside it: ``<name>.done``, written after it. An arrival is what
has a marker and was in no arrival before, by name; it is written down before it is used, so that a
run that goes on after a failure reads the same files in the same arrivals.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.data.source import SUFFIXES
from heterps.errors import InputError

MARKER = ".done"


def next_arrival(names: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    """Of the names in a folder, those that are to be read next; ``taken`` were read before."""
    there = set(names)
    data = (name for name in there if name.endswith(SUFFIXES) and name[0] not in "._")
    return tuple(sorted({name for name in data if f"{name}{MARKER}" in there} - set(taken)))


@dataclass(frozen=True)
class Arrival:
    """The ``number``-th, counted from 0: an epoch of its own."""

    number: int
    names: tuple[str, ...]


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

    def record(self, names: Iterable[str]) -> Arrival | None:
        """The next arrival out of what a folder holds now, on the disk once this returns; None if
        nothing new has a marker.
        """
        found = next_arrival(names, self.taken)
        if not found:
            return None
        arrival = Arrival(len(self._held), found)
        self._write([*self._held, arrival])
        self._held.append(arrival)
        return arrival

    def _write(self, arrivals: Sequence[Arrival]) -> None:
        """Whole or not at all."""
        partial = self._path.with_name(f".{self._path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            for arrival in arrivals:
                file.write(json.dumps({"arrival": arrival.number, "files": arrival.names}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)


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
        return Arrival(number, tuple(map(str, entry["files"])))
    except (ValueError, KeyError, TypeError):
        problem = f"line {number + 1} is no record of an arrival"
        raise InputError(str(path), f"{problem}: has it been edited?") from None
