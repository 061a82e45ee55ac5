"""Local files to URLs, where they appear whole or not at all.

On HDFS they are written under another name and renamed, which fails where the name is taken; an
object store shows an object once all of it is there.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heterps.errors import InputError
from heterps.storage.access import Storage, kind_of
from heterps.storage.patience import reason

_RENAMES = ("hdfs", "webhdfs", "viewfs")
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
    what was there. After an error nothing has changed. Raises InputError.
    """
    name = urlsplit(url).path.rpartition("/")[2]
    with tempfile.TemporaryDirectory(prefix="heterps-") as folder:
        local = Path(folder, name)
        yield local
        publish(local, url, storage or Storage())


def publish(local: Path, url: str, storage: Storage) -> None:
    """Raises InputError."""
    patience = storage.patience.for_bytes(local.stat().st_size)
    try:
        file_system, path = storage.file_system(url)
        if urlsplit(url).scheme not in _RENAMES:
            patience.persist(lambda: put_file(file_system, local, path), url)
            return
        folder, _, name = path.rpartition("/")
        partial = f"{folder}/.{name}.partial-{secrets.token_hex(6)}"
        patience.persist(lambda: file_system.makedirs(folder or "/", exist_ok=True), url)
        try:
            patience.persist(lambda: put_file(file_system, local, partial), url)
            patience.persist(lambda: _rename(file_system, partial, path), url)
        finally:
            with contextlib.suppress(Exception):
                file_system.rm(partial)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(url, f"cannot be written ({reason(error)})") from None


def put_file(file_system: Any, local: Path, path: str) -> None:
    """Once, without patience."""
    with local.open("rb") as source, file_system.open(path, "wb", **_options(file_system)) as out:
        shutil.copyfileobj(source, out, 8 << 20)


def _options(file_system: Any) -> dict[str, int]:
    return {"block_size": _BLOCK_BYTES} if file_system.protocol != "hdfs" else {}


def _rename(file_system: Any, partial: str, path: str) -> None:
    if not kind_of(file_system, partial):
        return  # an earlier attempt did it, and its answer was lost
    if kind_of(file_system, path):
        file_system.rm(path)
    file_system.mv(partial, path)
