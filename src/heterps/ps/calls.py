"""A call to one shard, and what becomes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from heterps.ps.pool import Pool
from heterps.wire.frames import Buffer, Header, as_buffer


@dataclass(frozen=True)
class Reply:
    """``lend`` gives the first array as one that may be kept, where it lies in shared memory."""

    fields: Mapping[str, Any]
    arrays: tuple[NDArray[Any], ...]
    lend: Callable[[], NDArray[Any]] | None = None


@dataclass(eq=False)
class Call:
    """``sequence`` stays the same when it is sent again. ``done`` gets the reply, whose arrays may
    lie in shared memory, so it has to be finished with them when it returns.
    """

    verb: str
    fields: Mapping[str, Any]
    buffers: list[Buffer]
    expires: float
    attempts_left: int
    done: Callable[[Reply | Exception], None]
    number: int = 0
    out: Buffer | None = None
    pool: Pool | None = None
    sent: float | None = None
    attempt_s: float | None = None
    settled: bool = False

    def overdue(self, now: float) -> bool:
        """Whether it is time to try another connection."""
        if self.attempt_s is None or self.sent is None or self.settled:
            return False
        return now - self.sent > self.attempt_s

    def message(self, pool: Pool) -> tuple[dict[str, Any], list[Buffer]]:
        """Fields and buffers for a connection: pieces of another one's memory go as frames."""
        shared = pool is self.pool and pool.enabled
        fields = {**self.fields, "call": self.number}
        left = max(0.0, self.expires - time.monotonic())
        # The server gives up a little earlier, so that its reason arrives in time.
        fields["patience_s"] = left - min(0.25 * left, 1.0)
        if shared and self.out is not None:
            fields |= {"segment": self.out.segment, "offset": self.out.offset}
        return fields, self.buffers if shared else [_inline(b) for b in self.buffers]

    def settle(self, outcome: Reply | Exception) -> None:
        """Hands the outcome on, once."""
        if not self.settled:
            self.settled = True
            self.done(outcome)

    def release(self) -> None:
        """Gives shared memory back; only when the server will not touch it any more."""
        pool, self.pool = self.pool, None
        if pool is not None:
            for buffer in [*self.buffers, *([self.out] if self.out else [])]:
                if not buffer.inline:
                    pool.give_back(buffer)
        self.buffers, self.out = [], None

    def reply(self, header: Header) -> Reply:
        arrays, lend = [], None
        for buffer in header.buffers:
            array = buffer.array
            if array is None and self.out is not None and _same(buffer, self.out):
                array, lend = self.out.array, self._lend
            if array is not None:
                arrays.append(array)
        return Reply(header.fields, tuple(arrays), lend)

    def _lend(self) -> NDArray[Any]:
        assert self.pool is not None
        assert self.out is not None
        out, self.out = self.out, None
        return self.pool.lend(out)


def read_document(reply: Reply) -> Any:
    """What the server sent as JSON behind the header."""
    return json.loads(reply.arrays[0].tobytes())


class Joint:
    """One future for calls to several shards: done when all are, failed with the first failure: at
    once, or, if it is to be ``settled``, when none of them is at work any more.
    """

    def __init__(
        self, calls: int, finish: Callable[[list[Any]], Any], *, settled: bool = False
    ) -> None:
        self.future: Future[Any] = Future()
        self._results: list[Any] = [None] * calls
        self._left = calls
        self._finish = finish
        self._settled = settled
        self._error: Exception | None = None
        self.future.set_running_or_notify_cancel()

    def part(
        self, index: int, take: Callable[[Reply], Any] = lambda reply: reply.fields
    ) -> Callable[[Reply | Exception], None]:
        """What the call of one shard does with its reply; all run in the same thread."""

        def done(outcome: Reply | Exception) -> None:
            if self.future.done():
                return
            self._left -= 1
            try:
                self._results[index] = take(_raised(outcome))
                if self._left == 0 and self._error is None:
                    self.future.set_result(self._finished())
            except Exception as error:  # noqa: BLE001 - it reaches whoever waits
                self._error = self._error or error
            if self._error is not None and (self._left == 0 or not self._settled):
                self.future.set_exception(self._error)

        return done

    def _finished(self) -> Any:
        """Lets go of all, which may refer to the future in turn: with that its result would stay
        until somebody collects garbage."""
        finish, results = self._finish, self._results
        self._finish, self._results = _nothing, []
        return finish(results)


def _nothing(results: list[Any]) -> None:
    raise AssertionError("finished already")


def _raised(outcome: Reply | Exception) -> Reply:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _inline(buffer: Buffer) -> Buffer:
    assert buffer.array is not None
    return buffer if buffer.inline else as_buffer(buffer.array, buffer.dtype)


def _same(given: Buffer, asked: Buffer) -> bool:
    return (given.segment, given.offset, given.shape) == (asked.segment, asked.offset, asked.shape)
