"""Local files and folders to URLs, where they appear whole or not at all.

On HDFS they are written under another name and renamed, which fails where the name is taken; an
object store shows an object once all of it is there.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heterps.data.patience import reason
from heterps.data.storage import Storage
from heterps.errors import InputError

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
        return storage.patience.persist(lambda: bool(file_system.exists(path)), url)
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
    patience = replace(storage.patience, attempt_s=None)  # a large file takes its time
    try:
        file_system, path = storage.file_system(url)
        if urlsplit(url).scheme not in _RENAMES:
            patience.persist(lambda: _put(file_system, local, path), url)
            return
        folder, _, name = path.rpartition("/")
        partial = f"{folder}/.{name}.partial-{secrets.token_hex(6)}"
        file_system.makedirs(folder or "/", exist_ok=True)
        try:
            patience.persist(lambda: _put(file_system, local, partial), url)
            patience.persist(lambda: _rename(file_system, partial, path), url)
        finally:
            with contextlib.suppress(Exception):
                file_system.rm(partial)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(url, f"cannot be written ({reason(error)})") from None


def publish_folder(local: Path, url: str, storage: Storage, last: str = "manifest.json") -> None:
    """All files of a folder to a new name, which HDFS gives them by a rename when all are there; on
    an object store the file ``last`` at its top comes last, and whoever reads looks for it first.
    Raises InputError, also for a name that is taken.
    """
    files = sorted(path for path in local.rglob("*") if path.is_file() and path != local / last)
    names = [path.relative_to(local).as_posix() for path in files] + [last]
    if is_there(f"{url}/{last}", storage):
        raise InputError(url, "is there already: nothing is overwritten")
    renamed = urlsplit(url).scheme in _RENAMES
    target = f"{url}.partial-{secrets.token_hex(6)}" if renamed else url
    for name in names:
        publish(local / name, f"{target}/{name}", storage)
    if renamed:
        _rename_folder(target, url, storage)


def _rename_folder(partial: str, url: str, storage: Storage) -> None:
    file_system, source = storage.file_system(partial)
    target = storage.file_system(url)[1]
    try:
        storage.patience.persist(lambda: _rename_new(file_system, source, target), url)
    except OSError as error:
        raise InputError(url, f"cannot be written ({reason(error)})") from None


def _rename_new(file_system: Any, source: str, target: str) -> None:
    if file_system.exists(source):  # else an earlier attempt did it, and its answer was lost
        file_system.mv(source, target)


def fetch_folder(url: str, local: Path, storage: Storage, last: str = "manifest.json") -> None:
    """The files of a published folder into a new local one, ``last`` at the end. Raises InputError
    for a folder that is not whole, or not there.
    """
    if not is_there(f"{url}/{last}", storage):
        raise InputError(url, f"holds no {last}: it is not whole, or not there")
    try:
        file_system, root = storage.file_system(url)
        found = storage.patience.persist(lambda: list(file_system.find(root)), url)
        names = [path.removeprefix(root).lstrip("/") for path in found]
        for name in sorted(names, key=lambda name: (name == last, name)):
            target = local / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _get(file_system, f"{root}/{name}", target, f"{url}/{name}", storage)
    except OSError as error:
        raise InputError(url, f"cannot be read ({reason(error)})") from None


def _get(file_system: Any, path: str, target: Path, url: str, storage: Storage) -> None:
    def copy() -> None:
        with file_system.open(path, "rb") as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, 8 << 20)

    replace(storage.patience, attempt_s=None).persist(copy, url)


def _put(file_system: Any, local: Path, path: str) -> None:
    with local.open("rb") as source, file_system.open(path, "wb", **_options(file_system)) as out:
        shutil.copyfileobj(source, out, 8 << 20)


def _options(file_system: Any) -> dict[str, int]:
    return {"block_size": _BLOCK_BYTES} if file_system.protocol != "hdfs" else {}


def _rename(file_system: Any, partial: str, path: str) -> None:
    if not file_system.exists(partial):
        return  # an earlier attempt did it, and its answer was lost
    if file_system.exists(path):
        file_system.rm(path)
    file_system.mv(partial, path)
