"""Local files to URLs, where they appear whole or not at all.

On HDFS they are written under another name and renamed; an object store shows an object once all of
it is there.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fsspec.spec import AbstractBufferedFile

from heterps.errors import InputError
from heterps.storage.access import Storage, kind_of
from heterps.storage.patience import reason
from heterps.storage.urls import BY_HOST

_BLOCK_BYTES = 64 << 20  # WebHDFS is slow with less: a request for each


def is_url(where: str | Path) -> bool:
    return "://" in str(where)


def is_there(where: str | Path, storage: Storage | None = None) -> bool:
    """Whether a file has this name already. Raises InputError."""
    if not is_url(where):
        return Path(where).exists()
    url, storage = str(where), storage or Storage()
    try:
        file_system, path = storage.file_system(url)
        file_system.invalidate_cache()
        return storage.patience.persist(lambda: kind_of(file_system, path) is not None, url)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(url, f"cannot be opened ({reason(error)})") from None


@contextlib.contextmanager
def to_url(url: str, storage: Storage | None = None) -> Iterator[Path]:
    """A local path to write to; at the end of the block its content is at ``url``, in place of
    what was there. After an error nothing has changed, unless a store goes away in the middle of
    it: then a hidden file may be left beside. Raises InputError.
    """
    storage = storage or Storage()
    _, path = _opened(url, storage)  # what will be refused is refused before the work
    with tempfile.TemporaryDirectory(prefix="heterps-") as folder:
        local = Path(folder, path.rpartition("/")[2])
        yield local
        publish(local, url, storage)


def publish(local: Path, url: str, storage: Storage) -> None:
    """Raises InputError."""
    patience = storage.patience.for_bytes(local.stat().st_size)
    file_system, path = _opened(url, storage)
    try:
        if urlsplit(url).scheme not in BY_HOST:
            patience.persist(lambda: put_file(file_system, local, path), url)
            return
        folder = path.rpartition("/")[0] or "/"
        storage.patience.persist(lambda: file_system.makedirs(folder, exist_ok=True), url)
        over = threading.Event()
        try:
            partial = patience.persist(lambda: _put_aside(file_system, local, path, over), url)
        finally:
            over.set()
        _put_in_place(file_system, partial, path, url, storage)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(url, f"cannot be written ({reason(error)})") from None


def put_file(file_system: Any, local: Path, path: str) -> None:
    """Once, without patience. After an error an object store has nothing of it."""
    with local.open("rb") as source:
        out = file_system.open(path, "wb", **_options(file_system))
        try:
            shutil.copyfileobj(source, out, 8 << 20)
            out.close()
        except BaseException:
            with contextlib.suppress(Exception):
                _give_up(out)
            raise


def _opened(url: str, storage: Storage) -> tuple[Any, str]:
    try:
        return storage.file_system(url)
    except (ValueError, ImportError) as error:
        raise InputError(url, f"cannot be written ({reason(error)})") from None


def _options(file_system: Any) -> dict[str, int]:
    return {"block_size": _BLOCK_BYTES} if file_system.protocol != "hdfs" else {}


def _give_up(out: Any) -> None:
    """Closing a file of an object store would make an object of what has come so far."""
    if not isinstance(out, AbstractBufferedFile):
        out.close()
        return
    out.closed = True
    if "webhdfs" not in out.fs.protocol:  # there it would remove what another attempt has written
        out.discard()


def _put_aside(file_system: Any, local: Path, path: str, over: threading.Event) -> str:
    """The name it has now, which no other attempt uses. Nothing is left of what comes too late."""
    folder, _, name = path.rpartition("/")
    partial = f"{folder}/.{name}.partial-{secrets.token_hex(6)}"
    try:
        put_file(file_system, local, partial)
        if over.is_set():
            raise TimeoutError
    except BaseException:
        with contextlib.suppress(Exception):
            file_system.rm(partial)
        raise
    return partial


def _put_in_place(file_system: Any, partial: str, path: str, url: str, storage: Storage) -> None:
    busy = threading.Lock()

    def rename() -> None:
        with busy:
            _rename(file_system, partial, path)

    try:
        storage.patience.persist(rename, url, alone=True)
    except BaseException:
        once = replace(storage.patience, total_s=0.0)
        if busy.acquire(blocking=False):  # else it may yet be renamed
            with contextlib.suppress(Exception):
                once.persist(lambda: _clear(file_system, partial, path), url)
        raise


def _rename(file_system: Any, partial: str, path: str) -> None:
    """Unless an earlier attempt did it, whose answer was lost."""
    if kind_of(file_system, partial):
        _replace(file_system, partial, path)
    if not kind_of(file_system, path):
        raise FileNotFoundError(errno.ENOENT, "it is gone: has its folder been removed?")


def _replace(file_system: Any, partial: str, path: str) -> None:
    """What was at ``path`` goes in the same step, or where WebHDFS cannot do that, just before."""
    if kind_of(file_system, path) == "directory":
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    file_system.mv(partial, path, overwrite=True)
    if not kind_of(file_system, partial):
        return
    file_system.rm(path)  # WebHDFS says nothing of a name that is taken
    file_system.mv(partial, path)
    if kind_of(file_system, partial):
        raise OSError(errno.EAGAIN, "it could not be renamed")


def _clear(file_system: Any, partial: str, path: str) -> None:
    """Unless what was at ``path`` has gone, and this is all there is."""
    if kind_of(file_system, path):
        file_system.rm(partial)
