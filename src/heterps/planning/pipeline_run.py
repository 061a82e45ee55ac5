"""A pipeline event by event.

Each replica computes with one thread and communicates over one link, which works beside it and
carries one message after the other. The parameter servers are one more queue, shared by all, and
so is the port of a host by what is on it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from heterps.planning.conditions import Conditions
from heterps.planning.ports import Places, Ports
from heterps.planning.replica_queue import (
    BACKWARD,
    COMMIT,
    FORWARD,
    NONE,
    SUM,
    WEIGHTS,
    ReplicaQueue,
    Shape,
)
from heterps.planning.service_times import ServiceTimes
from heterps.planning.simulation import Simulation
from heterps.planning.time_use import TimeUse

Act = Callable[[int, int], None]  # with a replica (or stage) and a micro-batch (or batch)


class PipelineRun:
    """Replicas are numbered through all stages."""

    def __init__(
        self,
        times: Sequence[ServiceTimes],
        shape: Shape,
        conditions: Conditions,
        places: Places | None = None,
    ) -> None:
        self._times = [stage.overlapping(conditions.overlap) for stage in times]
        self._shape = shape
        own = [(s, r) for s, units in enumerate(shape.replicas) for r in range(units)]
        self._number = {place: number for number, place in enumerate(own)}
        self._place = own
        self._stage = [stage for stage, _ in own]
        self._queues = [ReplicaQueue(shape, *place) for place in own]
        self._slow = [conditions.slow.get(place, 1.0) for place in own]
        self._link_free = [0.0] * len(own)
        self._ports = Ports(places)
        self._computing = [False] * len(own)
        self._use = TimeUse(shape.replicas)
        self._ends: dict[int, Act] = {
            FORWARD: self._forward_done,
            BACKWARD: self._backward_done,
            WEIGHTS: self._weights_done,
            COMMIT: self._commit_done,
        }
        self._factor = conditions.factors()
        self._server_s, self._server_free = conditions.server_s, 0.0
        self._at_commit = [0] * len(times)  # replicas that have come to it
        self._left_commit: dict[tuple[int, int], int] = {}  # and left it, by stage and batch
        self._open = [len(times)] * shape.batches  # stages that have yet to commit each batch
        users = sum(stage.rows for stage in times)
        self._rows_open = [users * shape.micro_batches] * shape.batches
        self._rows_committed = -1 if users else shape.batches
        self._held: dict[int, list[tuple[int, int]]] = {}  # pulls that wait for a commit, by batch
        self._read_ahead = [queue.next for queue in self._queues[: shape.replicas[0]]]
        self._events: list[tuple[float, int, Act, int, int]] = []
        self._sequence = 0
        self._now = 0.0
        self._ended: list[float] = []  # when each batch was through, in its tables too

    def to_the_end(self) -> None:
        room = 2 + self._shape.credit(0)  # as a worker reads ahead
        for replica in range(self._shape.replicas[0]):
            for _ in range(room):
                self._read(replica)
        for replica in range(len(self._queues)):
            self._work(replica)
        events = self._events
        while events:
            self._now, _, act, replica, at = heapq.heappop(events)
            act(replica, at)
        assert len(self._ended) == self._shape.batches, "the pipeline stopped before its end"

    def found(self, micro_batch_size: float, predicted: float | None) -> Simulation:
        shape, seconds = self._shape, self._ended[-1]
        size = micro_batch_size * shape.micro_batches
        first, last = steady_part(shape)
        steady = self._ended[last] - self._ended[first]
        stages, servers_busy = self._use.shares(first, last, steady)
        return Simulation(
            samples_per_s=size * (last - first) / steady if steady > 0 else None,
            run_samples_per_s=size * shape.batches / seconds if seconds > 0 else None,
            predicted=predicted,
            seconds=seconds,
            batches=shape.batches,
            micro_batches=shape.micro_batches,
            staleness=shape.staleness,
            lanes=shape.lanes,
            stages=tuple(
                stage.named(entry.type, entry.replicas)
                for stage, entry in zip(stages, self._times, strict=True)
            ),
            servers_busy=servers_busy,
        )

    def _at(self, time: float, act: Act, replica: int, at: int) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time, self._sequence, act, replica, at))

    def _later(self, seconds: float, act: Act, replica: int, at: int) -> None:
        """At once, if it takes no time."""
        if seconds > 0:
            self._at(self._now + seconds, act, replica, at)
        else:
            act(replica, at)

    def _over_link(self, replica: int, seconds: float, act: Act, at: int) -> None:
        """``act`` follows when the link of the replica has carried the message."""
        if seconds <= 0:
            self._at(self._now, act, replica, at)
            return
        seconds *= next(self._factor)
        self._use.link[replica] += seconds
        end = self._link_free[replica] = max(self._now, self._link_free[replica]) + seconds
        self._at(end, act, replica, at)

    def _by_servers(self, act: Act, replica: int, at: int) -> None:
        if not self._server_s:
            act(replica, at)
            return
        seconds = self._server_s * next(self._factor)
        self._use.servers += seconds
        self._server_free = max(self._now, self._server_free) + seconds
        self._at(self._server_free, act, replica, at)

    def _read(self, replica: int) -> None:
        """The first stage takes in one more micro-batch of its own."""
        at = self._read_ahead[replica]
        if at != NONE:
            self._read_ahead[replica] = self._queues[replica].following(at)
            self._received(replica, at)

    def _sent_on(self, replica: int, at: int) -> None:
        self._over_link(replica, self._times[self._stage[replica]].receive_s, self._received, at)

    def _received(self, replica: int, at: int) -> None:
        """Its input is there: on to its rows, as soon as the batches that it has to see are in."""
        self._queues[replica].arrived.add(at)
        stage = self._times[self._stage[replica]]
        if not stage.rows:
            self._over_link(replica, stage.fetch_s, self._ready, at)
            return
        place, size = self._place[replica], stage.sizes.ask
        known = self._ports.to_servers(self._now, stage.way_s, place, size)
        self._later(known - self._now, self._asked, replica, at)

    def _asked(self, replica: int, at: int) -> None:
        """The servers know what it wants."""
        awaited = at // self._shape.micro_batches - 1 - self._shape.staleness
        if awaited <= self._rows_committed:
            self._by_servers(self._pulled, replica, at)
        else:
            self._held.setdefault(awaited, []).append((replica, at))

    def _pulled(self, replica: int, at: int) -> None:
        stage, place = self._times[self._stage[replica]], self._place[replica]
        come = self._ports.from_servers(self._now, stage.way_s, place, stage.sizes.rows)
        self._later(stage.latency_s + come - self._now, self._rows_come, replica, at)

    def _rows_come(self, replica: int, at: int) -> None:
        self._over_link(replica, self._times[self._stage[replica]].fetch_s, self._ready, at)

    def _ready(self, replica: int, at: int) -> None:
        self._queues[replica].ready.add(at)
        self._work(replica)

    def _work(self, replica: int) -> None:
        """Begins what is next, unless the thread is at work."""
        if self._computing[replica]:
            return
        queue, stage = self._queues[replica], self._times[self._stage[replica]]
        task = queue.take()
        while task is not None and self._done_beside(replica, *task):
            task = queue.take()
        if task is None:
            self._use.idles(replica, self._now, queue.why())
            return
        do, at = task
        self._computing[replica] = True
        self._use.works(replica, self._now)
        seconds = _seconds(stage, do) * self._slow[replica] * next(self._factor)
        self._use.compute[replica] += seconds
        self._at(self._now + seconds, self._ends[do], replica, at)
        if do == FORWARD and not self._stage[replica]:
            self._read(replica)

    def _done_beside(self, replica: int, do: int, batch: int) -> bool:
        """What takes the thread no time, and steps of a commit that it does not wait in."""
        number = self._stage[replica]
        stage = self._times[number]
        if do == WEIGHTS:
            return stage.weights_s <= 0
        if do == SUM:
            if stage.sums:
                self._begin_sum(number, batch)
            else:
                self._queues[replica].sum_arrived()
            return True
        if do in (FORWARD, BACKWARD) or stage.sum_s > 0:
            return False
        self._leave_commit(number, batch)
        return True

    def _leave_commit(self, number: int, batch: int) -> None:
        stage = self._times[number]
        left = self._left_commit.pop((number, batch), 0) + 1
        if left < stage.replicas:
            self._left_commit[number, batch] = left
        else:
            self._open[batch] -= 1
            self._end_batches()

    def _commit_done(self, replica: int, batch: int) -> None:
        self._computing[replica] = False
        self._leave_commit(self._stage[replica], batch)
        self._work(replica)

    def _begin_sum(self, number: int, batch: int) -> None:
        """A replica has given its gradients; the last one lets the sum be made."""
        self._at_commit[number] += 1
        if self._at_commit[number] == self._times[number].replicas:
            self._at_commit[number] = 0
            for replica, end in self._exchange(number):
                self._at(end, self._sum_there, replica, batch)

    def _sum_there(self, replica: int, _: int) -> None:
        self._queues[replica].sum_arrived()
        self._work(replica)

    def _forward_done(self, replica: int, at: int) -> None:
        self._computing[replica] = False
        number = self._stage[replica]
        if number + 1 < len(self._times):
            seconds = self._times[number].send_s
            self._over_link(replica, seconds, self._leaves_forward, at)
        self._work(replica)

    def _leaves_forward(self, replica: int, at: int) -> None:
        stage = self._stage[replica]
        self._travel(replica, stage + 1, self._times[stage].sizes.on, self._sent_on, at)

    def _weights_done(self, replica: int, at: int) -> None:
        self._computing[replica] = False
        self._work(replica)

    def _backward_done(self, replica: int, at: int) -> None:
        """What others wait for leaves; the gradients of weights may come later."""
        self._computing[replica] = False
        number = self._stage[replica]
        stage = self._times[number]
        if number:
            self._over_link(replica, stage.receive_s, self._leaves_back, at)
        if stage.rows:
            self._over_link(replica, stage.push_s, self._pushed, at)
        self._work(replica)

    def _leaves_back(self, replica: int, at: int) -> None:
        stage = self._stage[replica]
        self._travel(replica, stage - 1, self._times[stage].sizes.back, self._gradient_sent, at)

    def _travel(self, replica: int, to: int, size: float, act: Act, at: int) -> None:
        one, other = self._times[self._stage[replica]], self._times[to]
        receiver = to, self._shape.replica(to, at)
        way_s, place = max(one.way_s, other.way_s), self._place[replica]
        there = self._ports.between(self._now, way_s, place, receiver, size)
        self._at(there + one.latency_s + other.latency_s, act, self._number[receiver], at)

    def _gradient_sent(self, replica: int, at: int) -> None:
        self._over_link(replica, self._times[self._stage[replica]].send_s, self._gradient_there, at)

    def _gradient_there(self, replica: int, at: int) -> None:
        self._queues[replica].gradient_arrived(at)
        self._work(replica)

    def _pushed(self, replica: int, at: int) -> None:
        stage, place = self._times[self._stage[replica]], self._place[replica]
        come = self._ports.to_servers(self._now, stage.way_s, place, stage.sizes.push)
        self._later(stage.latency_s + come - self._now, self._gradients_come, replica, at)

    def _gradients_come(self, replica: int, at: int) -> None:
        self._by_servers(self._counted, replica, at)

    def _counted(self, _: int, at: int) -> None:
        """A table has one more part of a batch, and commits it with the last one."""
        self._rows_open[at // self._shape.micro_batches] -= 1
        while self._rows_committed + 1 < self._shape.batches:
            if self._rows_open[self._rows_committed + 1]:
                break
            self._rows_committed += 1
            for replica, held in self._held.pop(self._rows_committed, ()):
                self._by_servers(self._pulled, replica, held)
        self._end_batches()

    def _exchange(self, number: int) -> list[tuple[int, float]]:
        """Of gradients between the replicas of a stage, over the link of each: until when."""
        stage, first = self._times[number], self._number[number, 0]
        own = range(first, first + stage.replicas)
        if stage.sync_s <= 0:
            return [(replica, self._now) for replica in own]
        seconds = stage.sync_s * next(self._factor)
        for replica in own:
            self._use.link[replica] += seconds
            self._link_free[replica] = max(self._now, self._link_free[replica]) + seconds
        return [(replica, self._link_free[replica]) for replica in own]

    def _end_batches(self) -> None:
        while len(self._ended) < self._shape.batches:
            batch = len(self._ended)
            if self._open[batch] or self._rows_committed < batch:
                return
            self._ended.append(self._now)
            if batch in steady_part(self._shape):
                self._use.mark(batch, self._now)


def _seconds(stage: ServiceTimes, do: int) -> float:
    if do == FORWARD:
        return stage.forward_s
    if do == COMMIT:
        return stage.sum_s
    return stage.weights_s if do == WEIGHTS else stage.backward_s - stage.weights_s


def steady_part(shape: Shape) -> tuple[int, int]:
    """Two batches between whose ends the pipeline is full: whole cycles of the lanes, if the run
    has them."""
    drained = min(shape.staleness + 2, shape.batches // 4)
    first, last = shape.batches // 4, shape.batches - 1 - drained
    if last <= first:
        return (0, shape.batches - 1) if shape.batches > 1 else (0, 0)
    cycle = shape.lanes // math.gcd(shape.lanes, shape.micro_batches)
    whole = (last - first) // cycle * cycle
    return (last - whole, last) if whole else (first, last)
