"""Folders and files by path or URL: a place is a ``Path`` of this machine's disks, or a ``Url``.

A ``Url`` has what writers and readers of many files need of a path. Its methods raise
FileNotFoundError for what is not there, and InputError when it cannot be had, or patience ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from heterps.errors import InputError
from heterps.storage.access import Storage, kind_of
from heterps.storage.listing import files_below
from heterps.storage.patience import Patience, reason
from heterps.storage.publish import is_url, publish
from heterps.storage.urls import without_password

_T = TypeVar("_T")
_BLOCK_BYTES = 8 << 20
_LONGEST_URL = 4096


@dataclass(frozen=True)
class Url:
    """``url`` has no slash at its end. Equal ones name the same place."""

    url: str
    storage: Storage = field(default_factory=Storage, compare=False)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, relative: str) -> Url:
        scheme, _, rest = self.url.partition("://")
        host, _, path = rest.partition("/")
        joined = posixpath.normpath(posixpath.join(f"/{path}", relative))
        return replace(self, url=f"{scheme}://{host}{joined}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Url:
        return replace(self, url=self.url.rpartition("/")[0])

    def exists(self) -> bool:
        return self._ask(lambda system, path: kind_of(system, path) is not None)

    def read_text(self) -> str:
        return self._ask(lambda system, path: bytes(system.cat_file(path))).decode()

    def write_text(self, text: str) -> None:
        """In place of what was there; whole or not at all."""
        with nameless_file() as local:
            local.write_text(text, encoding="utf-8")
            self.put(local)

    def put(self, local: Path) -> None:
        """Copies a local file here, in place of what was there; whole or not at all."""
        publish(local, self.url, self.storage)

    @contextlib.contextmanager
    def fetched(self) -> Iterator[Path]:
        """A copy on a local disk, for the time of the block."""
        size = self._ask(lambda system, path: int(system.info(path)["size"]))
        patience = self.storage.patience.for_bytes(size)
        with contextlib.ExitStack() as copies:
            yield self._ask(lambda system, path: _get(system, path, copies), patience)

    def files(self) -> dict[str, int]:
        """Bytes of all files in this folder and those below, by relative name."""
        return self._ask(_sizes)

    def remove(self) -> None:
        """A file, or a folder with all that is in it; nothing if there is none."""

        def act(system: Any, path: str) -> None:
            if kind_of(system, path):
                with contextlib.suppress(FileNotFoundError):  # to some an empty folder is nothing
                    system.rm(path, recursive=True)

        self._ask(act)

    def remove_if_possible(self) -> None:
        """Tries once, and says nothing of what goes wrong."""
        with contextlib.suppress(OSError, InputError):
            self.tried_once().remove()

    def tried_once(self) -> Url:
        """The same without patience."""
        once = replace(self.storage, patience=replace(self.storage.patience, total_s=0.0))
        return replace(self, storage=once)

    def _ask(self, action: Callable[[Any, str], _T], patience: Patience | None = None) -> _T:
        try:
            system, path = self.storage.file_system(self.url)
        except (ValueError, ImportError) as error:
            raise InputError(self.url, f"cannot be opened ({reason(error)})") from None

        def fresh() -> _T:
            system.invalidate_cache()  # what was listed earlier
            return action(system, path)

        try:
            return (patience or self.storage.patience).persist(fresh, self.url)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InputError(self.url, f"cannot be had ({reason(error)})") from None


Place = Path | Url


def place(
    where: str | os.PathLike[str] | Url,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    patience_s: float | None = None,
) -> Place:
    """``options`` of file systems by protocol, and how long to try, are for URLs. Raises InputError
    for one that names no folder.
    """
    if isinstance(where, Url):
        return where
    text = os.fspath(where)
    if not is_url(text):
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme in ("file", "local"):
        return Path(text.partition("://")[2])  # "#" and "?" are of the name
    if len(text) > _LONGEST_URL or not (parts.netloc or parts.path.strip("/")):
        raise InputError(
            without_password(text)[:100],
            "names no folder: expected such as hdfs://host:8020/folder",
        )
    patience = Patience() if patience_s is None else Patience(total_s=patience_s)
    return Url(text.rstrip("/"), Storage(options or {}, patience=patience))


def place_fields(where: Place) -> dict[str, Any]:
    """A place for a message, so that another machine finds it."""
    if isinstance(where, Path):
        return {"at": str(where.absolute())}
    options = {name: dict(held) for name, held in where.storage.options.items()}
    patience_s = where.storage.patience.total_s
    return {"at": where.url, "options": options, "patience_s": patience_s}


def place_of(fields: Mapping[str, Any]) -> Place:
    """What ``place_fields`` said. Raises InputError for what it did not."""
    at, options = fields.get("at"), fields.get("options")
    patience_s = fields.get("patience_s")
    if not isinstance(at, str):
        raise InputError("place", f"expected a path or a URL, got {at!r:.50}")
    known = options if isinstance(options, Mapping) else {}
    seconds = float(patience_s) if isinstance(patience_s, int | float) else None
    return place(at, known, seconds)


@contextlib.contextmanager
def nameless_file() -> Iterator[Path]:
    """A new file on a local disk that has no name there: nothing of it is left, whatever ends this
    process. The path is of use in this process alone.
    """
    with _nameless() as file:
        yield _path_of(file)


def _nameless() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="heterps-")


def _path_of(file: IO[bytes]) -> Path:
    return Path(f"/proc/self/fd/{file.fileno()}")


def _sizes(system: Any, path: str) -> dict[str, int]:
    if kind_of(system, path) != "directory":
        return {}
    try:
        return {name: int(entry["size"] or 0) for name, entry in files_below(system, path)}
    except FileNotFoundError:
        raise OSError(errno.EAGAIN, "changes while it is listed") from None


def _get(system: Any, path: str, copies: contextlib.ExitStack) -> Path:
    """A copy of its own: should another attempt be faster, this one writes on beside it, and fails
    when ``copies`` closes its file.
    """
    out = copies.enter_context(_nameless())
    with system.open(path, "rb") as source:
        shutil.copyfileobj(source, out, _BLOCK_BYTES)
    out.flush()
    return _path_of(out)
