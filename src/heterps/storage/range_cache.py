"""Ranges of remote files kept on a local disk, the ones used last, within a bound.

Each range is a file, named by a hash of the remote file's URL and version and of the range, so a
file that has changed is never served. It ends with a checksum. Any number of processes may share a
folder: a file appears whole, and one lock guards the count of bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from heterps.errors import InputError

_ENDING = struct.Struct("<I")
_LOCK, _SIZE, _SUFFIX = "lock", "bytes", ".range"
_KEPT_SHARE = 0.9  # of the bound, after something had to go


class RangeCache:
    """Raises InputError where the folder cannot be made; a full or failing disk later on only
    means that less is kept.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked():
                self._sweep()
        except OSError as error:
            problem = f"{folder} cannot be used ({error.strerror or error})"
            raise InputError("data.cache.path", problem) from None

    def get(self, url: str, version: str, start: int, stop: int) -> bytes | None:
        path = self._path(url, version, start, stop)
        try:
            kept = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        content = memoryview(kept)[: -_ENDING.size]
        if len(content) == stop - start and kept[-_ENDING.size :] == _ending(content):
            return bytes(content)
        with contextlib.suppress(OSError):  # torn by a crash of the machine, or a failing disk
            path.unlink()
        return None

    def put(self, url: str, version: str, start: int, content: bytes) -> None:
        needed = len(content) + _ENDING.size
        path = self._path(url, version, start, start + len(content))
        if needed > self._limit * _KEPT_SHARE:
            return
        partial = path.with_suffix(f".partial-{os.getpid()}-{id(content)}")
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.write(_ending(content))
            with self._locked():
                self._make_room(needed)
                partial.replace(path)
        except OSError:
            return
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()

    @property
    def size_bytes(self) -> int:
        """What lies in the folder now."""
        return sum(size for _, size, _ in self._entries())

    def _path(self, url: str, version: str, start: int, stop: int) -> Path:
        key = "\0".join((url, version, str(start), str(stop)))
        return self._folder / (hashlib.blake2b(key.encode(), digest_size=20).hexdigest() + _SUFFIX)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / _LOCK).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _make_room(self, needed: int) -> None:
        """Counts ``needed`` in; the files that were used longest ago go if that is too much."""
        counter = self._folder / _SIZE
        try:
            total = int(counter.read_text())
        except (OSError, ValueError):
            total = self._limit  # as good as full: the files are counted below
        if total + needed > self._limit:
            total = self._evict(needed)
        counter.write_text(str(total + needed))

    def _evict(self, needed: int) -> int:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        most = self._limit if total + needed <= self._limit else int(self._limit * _KEPT_SHARE)
        for _, size, path in entries:
            if total + needed <= most:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
        return total

    def _entries(self) -> list[tuple[int, int, Path]]:
        """When each was used last, its size, its path."""
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError):
                about = path.stat()
                found.append((about.st_mtime_ns, about.st_size, path))
        return found

    def _sweep(self) -> None:
        """What processes that were killed had begun; and the count, which they may have missed."""
        for path in self._folder.glob("*.partial-*"):
            owner = path.suffix.split("-")[1]
            if not Path(f"/proc/{owner}").exists():
                path.unlink(missing_ok=True)
        total = self._evict(0)
        (self._folder / _SIZE).write_text(str(total))


def _ending(content: bytes | memoryview) -> bytes:
    return _ENDING.pack(zlib.crc32(content))
