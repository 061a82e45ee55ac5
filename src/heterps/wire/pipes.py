"""Short notices from one process of a host to another, through pipes.

Like a segment a pipe is made under a name that others cannot guess, and loses it once both sides
have it open. It carries records of one length, each written and read as a whole. When a side ends,
however it does, the other finds out at once.
"""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path

from heterps.errors import WireError

_TRY_EVERY_S = 0.005
_RECORDS_AT_ONCE = 64


def make_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


class PipeReader:
    """For one thread. What comes first is the writer's greeting, of no meaning but that it is
    there."""

    def __init__(self, path: Path, record_bytes: int) -> None:
        """Raises WireError."""
        self._path = path
        self._size = record_bytes
        self._handle = _open(path, os.O_RDONLY)

    def fileno(self) -> int:
        """-1 once the writer has ended."""
        return self._handle

    def await_writer(self, timeout_s: float) -> None:
        """After that the pipe has no name any more. Raises WireError."""
        # Before there is a writer nothing can be read, which looks like the end of one.
        if not self.wait(timeout_s):
            raise WireError(f"pipe {self._path}: nobody writes to it in {timeout_s:g} s")
        os.read(self._handle, self._size)
        self._path.unlink(missing_ok=True)

    def wait(self, timeout_s: float | None) -> bool:
        """Whether there is something to take, the end included."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else 1000 * timeout_s))

    def take(self) -> list[bytes]:
        """All that has come; after the writer's end ``fileno`` says so."""
        if self._handle < 0:
            return []
        try:
            found = os.read(self._handle, self._size * _RECORDS_AT_ONCE)
        except BlockingIOError:
            return []
        if not found:
            self.close()
        return [found[at : at + self._size] for at in range(0, len(found), self._size)]

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class PipeWriter:
    """For one thread."""

    def __init__(self, path: Path, record_bytes: int, timeout_s: float) -> None:
        """Waits for the reader, and greets it. Raises WireError."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._handle = _open(path, os.O_WRONLY)
                break
            except WireError:
                # Without a reader it cannot be opened.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_TRY_EVERY_S)
        self.send(bytes(record_bytes))

    def send(self, record: bytes) -> None:
        """Raises WireError when the reader has ended."""
        try:
            os.write(self._handle, record)
        except OSError as error:
            raise WireError(f"pipe: {error.strerror}") from None

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _open(path: Path, way: int) -> int:
    try:
        handle = os.open(path, way | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise WireError(f"pipe {path}: {error.strerror}") from None
    status = os.fstat(handle)
    if not stat.S_ISFIFO(status.st_mode) or status.st_uid != os.getuid():
        os.close(handle)
        raise WireError(f"{path} is not a pipe of this user")
    return handle
