"""A signal from other threads to the one that waits for messages."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Protocol


class Source(Protocol):
    """Something that a wait ends for, beside messages."""

    def fileno(self) -> int:
        """What becomes readable then; -1 when it never will again."""
        ...

    @property
    def awaited(self) -> bool:
        """Whether to look for it even when there is no time to wait."""
        ...

    def clear(self) -> None:
        """Takes in what has come, in the thread that waits."""
        ...


class Wake:
    """Once ``set``, whoever waits with it returns, now or at its next wait. For signal handlers and
    for any thread, even one that outlives the waiting one."""

    awaited = False  # it says nothing but that there is something to look at

    def __init__(self) -> None:
        self._handle = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # A closed handle's number may be another file's. A signal handler is in the same thread.
        self._open = threading.RLock()

    def fileno(self) -> int:
        return self._handle

    def set(self) -> None:
        with self._open:
            if self._handle >= 0:
                os.eventfd_write(self._handle, 1)

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._handle)

    def close(self) -> None:
        with self._open:
            handle, self._handle = self._handle, -1
            if handle >= 0:
                os.close(handle)
