"""Micro-batches read ahead by a thread, a bounded number of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from heterps.data.batch import Batch, batch_bytes

MICRO_BATCHES, MAX_BYTES = 32, 256 << 20


class Reader(Protocol):
    def numbers(self, start: int = 0) -> Iterator[int]: ...
    def micro_batch(self, j: int) -> Batch: ...


class Prefetch:
    """Hands out what ``reader`` reads: quickly where the numbers are asked for in its order.

    At most ``micro_batches`` wait, and no more than ``max_bytes`` but for one. Having read so many
    it rests until half of them are gone: several in a row cost less than one at a time between
    other work. Another number than the next one starts anew from there. An error of the reader is
    raised where the micro-batch that it concerns is asked for. With ``stop``, nothing from that
    number on is read. ``on_read`` is called in the thread when one waits again. ``close``, or
    leaving the context, ends it.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        micro_batches: int = MICRO_BATCHES,
        max_bytes: int = MAX_BYTES,
        stop: int | None = None,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._limit = micro_batches
        self._max_bytes = max_bytes
        self._stop = stop
        self._on_read = on_read
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Batch | Exception]] = deque()
        self._waiting_bytes = 0
        self._resting = False  # from having read enough until half of it is gone
        self._next: Iterator[int] = iter(())  # what will be asked for if nothing is skipped
        self._expected = -1
        self._thread: threading.Thread | None = None
        self._ending = False

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def micro_batch(self, j: int) -> Batch:
        """Waits until it has been read. Raises what the reader raised."""
        assert self._stop is None or j < self._stop, f"micro-batch {j} is past the end"
        if j != self._expected:
            self._restart(j)
        with self._changed:
            self._changed.wait_for(lambda: self._waiting)
            number, found = self._waiting[0]
            assert number == j
            if isinstance(found, Exception):
                self._expected = -1  # whoever asks again has it read again
                raise found
            self._waiting.popleft()
            self._waiting_bytes -= batch_bytes(found)
            if self._resting and self._is_low():
                self._resting = False
                self._changed.notify_all()
        self._expected = next(self._next, -1)
        return found

    def is_read(self, j: int) -> bool:
        """Whether ``micro_batch`` would give it at once; has it read otherwise."""
        if j != self._expected:
            self._restart(j)
        with self._changed:
            return bool(self._waiting)

    def close(self) -> None:
        """Ends the thread, after the row group that it is reading."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._waiting.clear()
        self._waiting_bytes, self._expected, self._resting = 0, -1, False

    def _restart(self, j: int) -> None:
        self.close()
        self._ending = False
        self._next = self._numbers(j)
        self._expected = first = next(self._next, -1)
        assert first == j, f"micro-batch {j} is not one of this reader's"
        self._thread = threading.Thread(target=self._run, args=(j,), name="prefetch", daemon=True)
        self._thread.start()

    def _numbers(self, start: int) -> Iterator[int]:
        for j in self._reader.numbers(start):
            if self._stop is not None and j >= self._stop:
                return
            yield j

    def _run(self, start: int) -> None:
        for j in self._numbers(start):
            if not self._has_room():
                return
            found = self._read(j)
            with self._changed:
                first = not self._waiting
                self._waiting.append((j, found))
                if not isinstance(found, Exception):
                    self._waiting_bytes += batch_bytes(found)
                self._resting = self._is_full()
                self._changed.notify_all()
            if first:
                self._on_read()
            if isinstance(found, Exception):
                return

    def _read(self, j: int) -> Batch | Exception:
        try:
            return self._reader.micro_batch(j)
        except Exception as error:  # noqa: BLE001 - it reaches whoever asks for the micro-batch
            return error

    def _has_room(self) -> bool:
        """Waits for room; whether to go on."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or not self._resting)
            return not self._ending

    def _is_full(self) -> bool:
        return len(self._waiting) >= self._limit or self._waiting_bytes >= self._max_bytes

    def _is_low(self) -> bool:
        few = 2 * len(self._waiting) <= self._limit
        return few and 2 * self._waiting_bytes <= self._max_bytes
