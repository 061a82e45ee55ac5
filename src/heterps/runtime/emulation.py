"""Slower units out of the one kind that a machine has: a worker that idles after its work, and
messages that come and go as over a slower link."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from heterps.job.resources import ResourceType

BUSY_SHARE = 0.8  # of the cores; with more, workers hold each other up
_LEAST_SLEEP_S = 0.5e-3  # a shorter one takes longer than it should


@dataclass(frozen=True)
class Clock:
    """Seconds on the wall, seconds of CPU of this thread, and sleep."""

    now: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.thread_time
    sleep: Callable[[float], None] = time.sleep


class Emulation:
    """Of one unit, for the thread of its worker. Without ``slowdown`` and link it does nothing.

    The link carries one message after the other, in and out, at ``bytes_per_s``, and each of them
    is ``latency_s`` under way. Meanwhile the worker goes on: what is to happen to a message happens
    in ``run_due`` when its time has come.

    A unit that idles is at work as far as others can tell, and its link does not wait for that:
    ``serve``, if it is set, is called instead of sleeping, for at most so many seconds. It may take
    in messages, let due ones happen, and work itself, which makes the idling that much longer.
    """

    def __init__(
        self,
        slowdown: float = 1.0,
        bytes_per_s: float | None = None,
        latency_s: float = 0.0,
        clock: Clock | None = None,
        *,
        by_cpu: bool = True,
    ) -> None:
        """``by_cpu``: what the thread does shows in its own CPU time, as on one core."""
        self._by_cpu = by_cpu
        self._slowdown = slowdown
        self._bytes_per_s = bytes_per_s
        self._latency_s = latency_s
        self._clock = clock or Clock()
        self.carried_s = 0.0  # that the link has been taken for, without latency
        # What its work took such a unit, and the work that waits: time lost to others is not in it.
        self.work_s = self.step_s = 0.0
        self._owed_s = 0.0
        self._free_at = 0.0
        self._under_way: deque[tuple[float, Callable[[], None], bool]] = deque()
        self._leaving = 0
        self._paying = False
        self._new_s = 0.0
        self.serve: Callable[[float], None] | None = None

    @classmethod
    def of(cls, entry: ResourceType, clock: Clock | None = None) -> Emulation:
        mbps, ms = entry.link_mbps, entry.link_ms
        rate = None if mbps is None else mbps * 1e6 / 8
        one_core = entry.device.startswith("cpu") and entry.threads == 1
        return cls(entry.slowdown or 1.0, rate, (ms or 0.0) / 1e3, clock, by_cpu=one_core)

    @property
    def has_link(self) -> bool:
        return self._bytes_per_s is not None or self._latency_s > 0

    @contextmanager
    def work(self, *, waits: bool = False, sends: bool = False) -> Iterator[None]:
        """Around a piece of work, which ends for others when ``slowdown`` times the CPU time that
        it took has passed: the rest of that is owed until ``pay``. Where the work ``waits`` for
        others in between, that time is not made longer and does not count for it, and it is paid
        at once. What hands messages over ``sends``: a slower unit computes more slowly, and how
        slow its link is has figures of its own."""
        began, cpu = self._clock.now(), self._clock.cpu()
        yield
        cpu = self._clock.cpu() - cpu
        wall = self._clock.now() - began
        slowdown = 1.0 if sends else self._slowdown
        if waits:
            self.step_s += slowdown * cpu
        else:
            self.work_s += slowdown * cpu if self._by_cpu else max(wall, slowdown * cpu)
        idle = idle_s(slowdown, cpu, cpu if waits else wall) if slowdown > 1.0 else 0.0
        # While it pays, all time that passes is taken for paying.
        self._owed_s += idle + (wall if self._paying else 0.0)
        if waits:
            self._idle(None)
        else:
            self._new_s += idle

    def take_owed_s(self) -> float:
        """What was added to it since the last call."""
        owed, self._new_s = self._new_s, 0.0
        return owed

    def pay(self) -> bool:
        """Idles until all work is over for others too: before they hear of it, and before this
        worker waits for them. Until then pieces follow each other, as the caches of a core are
        cold after every sleep. Gives whether it did."""
        owed = self._owed_s >= _LEAST_SLEEP_S and not self._paying
        if owed:
            self._idle(self.serve)
        return owed

    def carry(self, size_bytes: float, then: Callable[[], None], *, leaves: bool = False) -> None:
        """``then`` happens when the link has carried so many bytes: at once without a link.
        ``leaves``: somebody else waits for it."""
        if not self.has_link:
            then()
            return
        due = self._occupy(size_bytes) + self._latency_s
        self._under_way.append((due, then, leaves))
        self._leaving += leaves

    def run_due(self) -> None:
        """Lets happen what is due."""
        while self._under_way and self._under_way[0][0] <= self._clock.now():
            _, then, leaves = self._under_way.popleft()
            self._leaving -= leaves
            then()

    def next_due_s(self, at_most: float) -> float:
        """How long a worker with nothing to do may wait."""
        if not self._under_way:
            return at_most
        return min(at_most, max(0.0, self._under_way[0][0] - self._clock.now()))

    def settle(self) -> None:
        """Waits until all that leaves has left: others may need it while this worker waits for
        them."""
        while self._leaving:
            self._clock.sleep(self.next_due_s(at_most=3600.0))
            self.run_due()

    def exchange(self, size_bytes: float) -> None:
        """Waits as long as the link is taken by so many bytes that have just been exchanged."""
        if self.has_link and size_bytes:
            due = self._occupy(size_bytes) + self._latency_s
            self._clock.sleep(max(0.0, due - self._clock.now()))

    def _occupy(self, size_bytes: float) -> float:
        seconds = size_bytes / self._bytes_per_s if self._bytes_per_s else 0.0
        self.carried_s += seconds
        self._free_at = max(self._clock.now(), self._free_at) + seconds
        return self._free_at

    def _idle(self, serve: Callable[[float], None] | None) -> None:
        """Short times add up until they are worth a sleep; one that took longer counts for the
        next."""
        if self._paying:
            return
        self._paying = True
        try:
            while self._owed_s >= _LEAST_SLEEP_S:
                began = self._clock.now()
                if serve is None:
                    self._clock.sleep(self._owed_s)
                else:
                    serve(self.next_due_s(self._owed_s))
                self._owed_s -= self._clock.now() - began
        finally:
            self._paying = False


def idle_s(slowdown: float, cpu_s: float, passed_s: float) -> float:
    """How long a unit that is slower by ``slowdown`` would still be at work."""
    return max(0.0, slowdown * cpu_s - passed_s)


def exchanged_bytes(weight_bytes: float, replicas: int, *, by_servers: bool = False) -> float:
    """What one of the replicas sends and receives to sum gradients: around a ring, or by sending
    them to servers and getting weights back."""
    if by_servers:
        return 2 * weight_bytes
    return 4 * weight_bytes * (replicas - 1) / replicas


@dataclass(frozen=True)
class Demand:
    """How many cores a run keeps busy, and how many there are."""

    busy: float
    cores: int

    @property
    def oversubscribed(self) -> bool:
        """Such a run is no evidence about predictions."""
        return self.busy > BUSY_SHARE * self.cores

    @classmethod
    def of(cls, units: Iterable[tuple[ResourceType, int]], servers: int, cores: int) -> Demand:
        """``units`` of each type, and the threads of all ``servers``."""
        on_cpu = ((entry, count) for entry, count in units if entry.device.startswith("cpu"))
        busy = sum(count * entry.threads / (entry.slowdown or 1.0) for entry, count in on_cpu)
        return cls(busy + servers, cores)
