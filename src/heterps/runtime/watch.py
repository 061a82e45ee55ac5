"""Whether the processes of a run live and get on: looks at them, and raises for one that does not.

```text
 ended     its exit is seen at the next look
 frozen    a worker sends no beats, a server answers no pings, or the system says it is stopped;
           one that waits for a processor or the disk is given more time
 stuck     beats carry a count of what was done, and no worker's grows; where a process is at
           work all the while, more time is given
```
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

from heterps.errors import ProcessError
from heterps.processes import ending
from heterps.ps.calls import Joint
from heterps.ps.client import Client
from heterps.runtime.engines.base import Handle
from heterps.runtime.failure import FROZEN_S, STARVED_S, is_stuck

_PING_EVERY_S = 1.0
_STARTING_S = 20.0  # while libraries load, beats may be late
_LOOK_EVERY_S = 0.25
_OWN_PAUSE_S = 1.0  # between two looks: then it is this process that was late


class Beat(NamedTuple):
    """When a worker was last heard, how far it had got, and when it got there."""

    heard: float
    progress: int
    progressed: float


class Watch:
    """The workers by number, and the servers by shard; ``client`` is set once servers answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.workers: list[Handle] = []
        self.servers: list[Handle] = []
        self.client: Client | None = None
        self.beats: dict[int, Beat] = {}
        self._pings: dict[int, _Ping] = {}
        self._stopped: dict[str, float] = {}  # since when
        self._silence_s = _STARTING_S
        self._progressed = 0.0  # when any worker last got on
        self._worked = 0.0  # when any process was last seen at work without that
        self._next_look = self._looked = 0.0

    def heard(self, worker: int, progress: int) -> None:
        """A beat has come."""
        now, last = self._clock(), self.beats.get(worker)
        if last is None or progress != last.progress:
            self._progressed = now
        progressed = last.progressed if last and last.progress == progress else now
        self.beats[worker] = Beat(now, progress, progressed)

    def begin_work(self) -> None:
        """Progress is expected from now on."""
        self._silence_s = FROZEN_S
        self._progressed = self._clock()

    def expect_progress(self, within_s: float) -> None:
        """Raises when no worker has got on for so long, and nobody is at work either."""
        now = self._clock()
        silent = now - self._progressed
        if silent > within_s and any(handle.wants_to_run() for handle in self._all()):
            self._worked = now
        if is_stuck(silent, now - self._worked, within_s):
            late = min(self.beats, key=lambda worker: self.beats[worker].progressed)
            problem = f"makes no progress, nor does any other, for {silent:.0f} s"
            raise ProcessError(self.workers[late].spec.name, problem, "stuck")

    def look(self) -> None:
        """Raises for a process that has ended or gives no sign of life."""
        for handle in self._all():
            if handle.poll() is not None:
                raise _ended(handle)
        now = self._clock()
        if now < self._next_look:
            return
        self._forgive(now)
        self._next_look = now + _LOOK_EVERY_S
        self._look_for_stopped(now)
        for worker, beat in self.beats.items():
            if _frozen_by_now(self.workers[worker], now - beat.heard, self._silence_s):
                raise _frozen(self.workers[worker], now - beat.heard)
        if self.client is not None:
            self._ping(self.client, now)

    def _forgive(self, now: float) -> None:
        """What this process did not hear because it did not get to run counts for nobody."""
        late = now - self._looked - _OWN_PAUSE_S
        if self._looked and late > 0:
            shifted = {n: beat._replace(heard=beat.heard + late) for n, beat in self.beats.items()}
            self.beats.update(shifted)
        self._looked = now

    def cause(self) -> ProcessError | None:
        """A process whose end or stop nobody else's failure explains, if there is one."""
        for handle in self._all():
            code = handle.poll()
            if code is not None and (code < 0 or handle in self.servers):
                return _ended(handle)
            if handle.stopped():
                return _frozen(handle, 0.0)
        return None

    def gone(self) -> ProcessError | None:
        """A process that has ended, however."""
        return next((_ended(handle) for handle in self._all() if handle.poll() is not None), None)

    def _all(self) -> Iterator[Handle]:
        yield from self.workers
        yield from self.servers

    def _look_for_stopped(self, now: float) -> None:
        for handle in self._all():
            if not handle.stopped():
                self._stopped.pop(handle.spec.name, None)
            elif now - self._stopped.setdefault(handle.spec.name, now) > FROZEN_S:
                raise _frozen(handle, now - self._stopped[handle.spec.name])

    def _ping(self, client: Client, now: float) -> None:
        for shard, handle in enumerate(self.servers):
            ping = self._pings.get(shard)
            since = now  # when the first of those was sent that had no answer
            if ping is not None:
                if not ping.asked.done():
                    continue
                if ping.asked.exception() is not None:
                    since = ping.since
                    if _frozen_by_now(handle, now - since, 0.0):
                        raise _frozen(handle, now - since)
                elif now - ping.at < _PING_EVERY_S:
                    continue
            self._pings[shard] = _Ping(now, _asked(client, shard), since)


class _Ping(NamedTuple):
    at: float
    asked: Future[list[Any]]
    since: float


def _asked(client: Client, shard: int) -> Future[list[Any]]:
    joint = Joint(1, lambda results: results)
    client.call(shard, "ping", {}, joint.part(0, lambda reply: None), timeout_s=FROZEN_S)
    return joint.future


def _frozen_by_now(handle: Handle, silent_s: float, within_s: float) -> bool:
    if silent_s <= within_s:
        return False
    return silent_s > STARVED_S or not handle.wants_to_run()


def _ended(handle: Handle) -> ProcessError:
    code = handle.poll()
    assert code is not None
    return ProcessError(handle.spec.name, f"{ending(code)}: {handle.last_words()}", "ended")


def _frozen(handle: Handle, silent_s: float) -> ProcessError:
    lasts = f" for {silent_s:.1f} s" if silent_s else ""
    return ProcessError(handle.spec.name, f"gives no sign of life{lasts}", "frozen")
