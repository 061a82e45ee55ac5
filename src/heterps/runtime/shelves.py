"""Where the snapshots of a run stand: a folder on a disk, or at a URL.

```text
                 on a disk                       at a URL
 named           step-00001200                   step-00001200-9d04e1f7-3f9a01c2
 is one when     its folder has this name        its manifest is there, which is written last
 half written    step-00001200.partial-…         no manifest
 set aside       step-00001200.damaged           damaged.json in place of its manifest
```

A name at a URL begins with the step and the run, and is never the same twice: a writer of an
earlier generation that still writes, on a machine that was cut off, is in nobody's way. Names of
earlier versions do not tell the run.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from heterps.errors import InputError
from heterps.runtime.saved_model import MANIFEST, TABLES, save_dense, save_to_url, saving
from heterps.storage.places import Place, Url

PREFIX = "step-"
_LOCAL = re.compile(r"step-\d+")
_AT_URL = re.compile(r"step-\d+(?:-(?P<run>[0-9a-f]{8}))?-[0-9a-f]{8}")
_DAMAGED = "damaged.json"

SaveTables = Callable[[Place], None]


def step_of(path: Place) -> int:
    return int(path.name.removeprefix(PREFIX).partition("-")[0])


class Shelf(ABC):
    """Each snapshot is a folder of its own. Raises InputError where a store cannot be reached."""

    folder: Place

    @abstractmethod
    def places(self) -> list[Place]:
        """Of all snapshots of this run, the newest first, damaged or not."""

    @abstractmethod
    def marks(self) -> set[str | None]:
        """Of the runs whose snapshots are here, this one or others; None: a name does not say."""

    @abstractmethod
    def write(
        self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any], tables: SaveTables
    ) -> Place:
        """Publishes one once it is whole. Raises SnapshotError."""

    @abstractmethod
    def remove(self, place: Place) -> None: ...

    @abstractmethod
    def set_aside(self, place: Place) -> None:
        """It counts as one no longer, and is kept for a person to look at."""

    @abstractmethod
    def sweep(self) -> None:
        """Removes what was being written when its writer was killed."""

    @abstractmethod
    def size_bytes(self, place: Place) -> int: ...


class LocalShelf(Shelf):
    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder

    def places(self) -> list[Place]:
        found = [path for path in self.folder.glob(f"{PREFIX}*") if _LOCAL.fullmatch(path.name)]
        return [*sorted(found, reverse=True)]

    def marks(self) -> set[str | None]:
        return {None} if self.places() else set()

    def write(
        self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any], tables: SaveTables
    ) -> Path:
        path = self.folder / f"{PREFIX}{step:08d}"
        with saving(path, about) as folder:
            save_dense(folder, state)
            tables(folder / TABLES)
        return path

    def remove(self, place: Place) -> None:
        """Under another name: what a killed process leaves of it is no snapshot."""
        assert isinstance(place, Path)
        partial = place.with_name(f"{place.name}.partial-{secrets.token_hex(6)}")
        with contextlib.suppress(OSError):
            place.rename(partial)
            shutil.rmtree(partial, ignore_errors=True)

    def set_aside(self, place: Place) -> None:
        assert isinstance(place, Path)
        aside = place.with_name(f"{place.name}.damaged")
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)

    def sweep(self) -> None:
        for partial in self.folder.glob(f"{PREFIX}*.partial-*"):
            shutil.rmtree(partial, ignore_errors=True)

    def size_bytes(self, place: Place) -> int:
        assert isinstance(place, Path)
        return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


class UrlShelf(Shelf):
    """``mark`` of the run's id stands in the names of its snapshots; without one all are its."""

    def __init__(self, folder: Url, mark: str | None = None) -> None:
        self.folder: Url = folder
        self._mark = mark

    def places(self) -> list[Place]:
        return [self.folder / name for name, held in self._own().items() if MANIFEST in held]

    def marks(self) -> set[str | None]:
        return {_mark_in(name) for name, held in self._held().items() if MANIFEST in held}

    def write(
        self, step: int, state: Mapping[str, Tensor], about: Mapping[str, Any], tables: SaveTables
    ) -> Url:
        parts = [f"{step:08d}", *([self._mark] if self._mark else []), secrets.token_hex(4)]
        name = PREFIX + "-".join(parts)
        save_to_url(self.folder / name, state, about, tables)
        return self.folder / name

    def remove(self, place: Place) -> None:
        """The manifest first: what is left of it is no snapshot."""
        assert isinstance(place, Url)
        (place / MANIFEST).remove_if_possible()
        place.remove_if_possible()

    def set_aside(self, place: Place) -> None:
        assert isinstance(place, Url)
        with contextlib.suppress(InputError, FileNotFoundError):
            (place / _DAMAGED).write_text((place / MANIFEST).read_text())
            (place / MANIFEST).remove()

    def sweep(self) -> None:
        with contextlib.suppress(InputError):
            for name, held in self._own().items():
                if not {MANIFEST, _DAMAGED} & held:
                    (self.folder / name).remove_if_possible()

    def size_bytes(self, place: Place) -> int:
        assert isinstance(place, Url)
        return sum(place.files().values())

    def _own(self) -> dict[str, set[str]]:
        """Those of this run, and those that do not say whose they are."""
        own = (None, self._mark)
        held = self._held()
        return {n: h for n, h in held.items() if self._mark is None or _mark_in(n) in own}

    def _held(self) -> dict[str, set[str]]:
        """The names of the files in each snapshot's folder, the newest first."""
        held: dict[str, set[str]] = {}
        for name in self.folder.files():
            top, _, rest = name.partition("/")
            if _AT_URL.fullmatch(top):
                held.setdefault(top, set()).add(rest)
        return dict(sorted(held.items(), reverse=True))


def make_shelf(folder: Place, mark: str | None = None) -> Shelf:
    return UrlShelf(folder, mark) if isinstance(folder, Url) else LocalShelf(folder)


def mark_of(run_id: str) -> str:
    """What stands of a run's id in the names of its snapshots at a URL."""
    return run_id[:8]


def _mark_in(name: str) -> str | None:
    found = _AT_URL.fullmatch(name)
    return found["run"] if found else None
