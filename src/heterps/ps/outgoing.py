"""The files of a shard's part of a snapshot, on their way to where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from heterps.errors import SnapshotError
from heterps.ps.manifests import Entry, seal
from heterps.storage.places import Place, Url, nameless_file

_AT_ONCE = 4


class Outgoing:
    """Into a local folder they are written in place. Those for a URL are written to a local disk,
    where they have no name, and then sent: rows come in any order, and HDFS appends only. They go
    at the end of the block.
    """

    def __init__(self, folder: Place) -> None:
        self.folder = folder
        self._paths: dict[str, Path] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        if isinstance(self.folder, Path):
            self.folder.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    def in_place(self) -> bool:
        return isinstance(self.folder, Path)

    def path(self, name: str) -> Path:
        """Where to write a file."""
        if isinstance(self.folder, Path):
            self._paths[name] = self.folder / name
        else:
            self._paths[name] = self._closing.enter_context(nameless_file())
        return self._paths[name]

    def sent(self, names: Sequence[str]) -> list[Entry]:
        """What the manifest says of files that are written; they are where they belong. Raises
        SnapshotError, or InputError when patience with a store ends."""
        if isinstance(self.folder, Path):
            return [seal(self._paths[name]) for name in names]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._send, names))

    def _send(self, name: str) -> Entry:
        assert isinstance(self.folder, Url)
        local, target = self._paths[name], self.folder / name
        sealed = seal(local, name)
        try:
            target.put(local)
        except OSError as error:
            raise SnapshotError(target, f"cannot be written: {error.strerror or error}") from error
        return sealed
