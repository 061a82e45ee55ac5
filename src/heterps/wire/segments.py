"""Shared memory for large buffers between processes of one host.

A segment is a plain mapped file that its owner makes and its peer opens; once both have it open it
loses its name, so that whatever is killed leaves nothing behind. One belongs to one connection: a
process of an earlier generation writes only into segments that nobody reads any more.
"""

from __future__ import annotations

import mmap
import os
import secrets
import stat
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heterps.errors import WireError
from heterps.wire.frames import DTYPES, Buffer

PREFIX = "heterps-"
ALIGNMENT = 64
MAX_SEGMENT_BYTES = 1 << 30


def segment_folder() -> Path:
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


def segment_folders() -> list[Path]:
    """The second is for what has to be shared and finds no memory in the first."""
    return list(dict.fromkeys((segment_folder(), Path(tempfile.gettempdir()))))


def new_path(folder: Path | None = None) -> Path:
    """A name that others cannot guess, and by which it goes when this process was killed."""
    return (folder or segment_folder()) / f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}"


def remove_segments_of(pid: int, folders: Sequence[Path] | None = None) -> None:
    """What a process that was killed had made and its peer not yet opened. Without ``folders`` it
    looks for them, which may take a lock."""
    for folder in segment_folders() if folders is None else folders:
        for path in folder.glob(f"{PREFIX}{pid}-*"):
            path.unlink(missing_ok=True)


class Segment:
    """Mapped memory under a number that both sides know."""

    def __init__(self, number: int, path: Path, handle: int, size_bytes: int) -> None:
        self.number = number
        self.path = path
        self.size_bytes = size_bytes
        self._map = mmap.mmap(handle, size_bytes, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.memory: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    @classmethod
    def create(cls, number: int, size_bytes: int, folder: Path | None = None) -> Segment:
        """Raises OSError, also when the memory is not there: never a bus error later."""
        path = new_path(folder)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, size_bytes)
            return cls(number, path, handle, size_bytes)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(handle)

    @classmethod
    def open(cls, number: int, path: Path, size_bytes: int) -> Segment:
        """A peer's segment, which loses its name here; raises WireError when it is none."""
        if path.parent != segment_folder():
            raise WireError(f"{path} is no place for a segment")
        if size_bytes > MAX_SEGMENT_BYTES:
            raise WireError(f"segment {path}: expected {MAX_SEGMENT_BYTES} bytes at most")
        segment = cls.join(number, path, size_bytes)
        segment.unlink()
        return segment

    @classmethod
    def join(cls, number: int, path: Path, size_bytes: int) -> Segment:
        """The same for one of several peers: it keeps its name."""
        if path.parent not in segment_folders() or not path.name.startswith(PREFIX):
            raise WireError(f"{path} is no place for a segment")
        try:
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise WireError(f"segment {path}: {error.strerror}") from None
        try:
            _check(path, os.fstat(handle), size_bytes)
            return cls(number, path, handle, size_bytes)
        except OSError as error:
            raise WireError(f"segment {path}: {error.strerror}") from None
        finally:
            os.close(handle)

    def unlink(self) -> None:
        self.path.unlink(missing_ok=True)

    def array(self, buffer: Buffer) -> NDArray[Any]:
        """The buffer's bytes as an array over the segment; raises WireError beyond its end."""
        end = buffer.offset + buffer.size_bytes
        if buffer.offset % ALIGNMENT or end > self.size_bytes:
            raise WireError(f"bytes {buffer.offset} to {end} of a segment of {self.size_bytes}")
        return self.memory[buffer.offset : end].view(DTYPES[buffer.dtype]).reshape(buffer.shape)


class Arena:
    """Hands out pieces of a segment; for several threads. The lowest free place is taken first,
    so that a few pages are used again and again and stay in the cache.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._lock = threading.Lock()
        self._taken: dict[int, int] = {}

    def take(self, dtype: str, shape: tuple[int, ...]) -> Buffer | None:
        """A piece for an array, or None when there is no room now."""
        size = max(ALIGNMENT, Buffer(dtype, shape, None).size_bytes)
        with self._lock:
            offset = self._lowest_gap(-(-size // ALIGNMENT) * ALIGNMENT)
            if offset is None:
                return None
            self._taken[offset] = -(-size // ALIGNMENT) * ALIGNMENT
        place = Buffer(dtype, shape, None, self.segment.number, offset)
        return Buffer(dtype, shape, self.segment.array(place), self.segment.number, offset)

    def give_back(self, buffer: Buffer) -> None:
        with self._lock:
            del self._taken[buffer.offset]

    @property
    def empty(self) -> bool:
        return not self._taken

    def _lowest_gap(self, size: int) -> int | None:
        start = 0
        for offset in sorted(self._taken):
            if offset - start >= size:
                break
            start = offset + self._taken[offset]
        return start if start + size <= self.segment.size_bytes else None


def _check(path: Path, status: os.stat_result, size_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
        raise WireError(f"segment {path} is not a file of this user")
    if status.st_size != size_bytes or size_bytes <= 0:
        raise WireError(f"segment {path} has {status.st_size} bytes, not {size_bytes}")
