"""The loop of one worker: what has arrived, what is next, and doing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heterps.data.lane_plan import LanePlan, lanes_of_replica
from heterps.data.prefetch import Prefetch
from heterps.models.batch import LOSS
from heterps.runtime.channel import FORWARD, Arrived, Mesh
from heterps.runtime.inputs import Feed, Inputs
from heterps.runtime.layout import Layout, micro_batch, micro_batches_of
from heterps.runtime.lookups import Lookups
from heterps.runtime.meter import BACKWARD, COMMIT, PREDICT, PREPARE, SEND, Meter
from heterps.runtime.meter import FORWARD as FORWARD_S
from heterps.runtime.metrics import Counts
from heterps.runtime.pipeline import Do, ReplicaProgram, Task
from heterps.runtime.stage import Stage

_WAIT_S = 0.5


@dataclass
class Segment:
    """Batches that are to be done: up to ``end``, not included, and with ``closed`` no more."""

    end: int
    closed: bool


@dataclass
class Orders:
    """What the loop asks and tells while it runs."""

    segment: Callable[[], Segment]  # as it is now known
    progressed: Callable[[], None]
    committed: Callable[[int], None]
    waiting: Callable[[], None]  # there is nothing to do just now


class Replica:
    """One replica of one stage, its connections and its input, for one thread."""

    def __init__(
        self,
        layout: Layout,
        place: tuple[int, int],
        stage: Stage,
        mesh: Mesh,
        inputs: Inputs,
        lookups: Lookups,
        counts: Callable[[], Counts],
        like: Tensor,
    ) -> None:
        """``like`` is a tensor of the type and on the device that the stage computes with."""
        self.stage = stage
        self.mesh = mesh
        self.meter = Meter()
        self.losses: list[tuple[int, float]] = []  # of micro-batches, since they were last taken
        self.samples = 0
        self._layout = layout
        self._routing = layout.routing
        self._stage, self._replica = place
        self._last = self._stage == self._routing.stages - 1
        self._inputs = inputs
        self._lookups = lookups
        self._new_counts = counts
        self.counts = counts()
        self._like = like
        self._exact = self._exact_names()
        self._gradients: dict[int, dict[str, Tensor]] = {}
        self._early: list[Arrived] = []

    def idle(self, timeout_s: float) -> None:
        """Answers neighbours that connect; what they send is kept for the next pass."""
        self._early += self.mesh.receive(timeout_s)

    def train(self, first: int, reader: Prefetch | None, orders: Orders) -> None:
        """From batch ``first`` to the end of the segment, which may move while it runs."""
        plan = self._layout.train
        program = self._program(plan, first, orders.segment().end, self._layout.staleness)

        def do(task: Task) -> None:
            if task.do is Do.FORWARD:
                self._forward(task.number)
            elif task.do is Do.BACKWARD:
                self._backward(task.number)
            else:
                with self.meter.measure(COMMIT):
                    self.stage.commit(task.number)
                orders.committed(task.number)

        start = plan.batch(first).first
        self._loop(program, do, plan, self._feed(plan, reader, start), orders, training=True)
        self._lookups.settle()

    def validate(self, reader: Prefetch | None, orders: Orders) -> Counts:
        """Every micro-batch of the validation set forward, and an empty answer back: what is under
        way stays bounded in the same way."""
        plan = self._layout.validation
        assert plan is not None
        counts = self._new_counts()
        end = orders.segment().end
        program = self._program(plan, 0, end, end)

        def do(task: Task) -> None:
            if task.do is Do.FORWARD:
                self._predict(task.number, counts)
            elif task.do is Do.BACKWARD and self._stage > 0:
                self._send_back(task.number, {})

        self._loop(program, do, plan, self._feed(plan, reader, 0), orders, training=False)
        return counts

    def take_losses(self) -> list[tuple[int, float]]:
        losses, self.losses = self.losses, []
        return losses

    def take_counts(self) -> Counts:
        """What was counted since the last call."""
        counts, self.counts = self.counts, self._new_counts()
        return counts

    def _program(self, plan: LanePlan, first: int, end: int, staleness: int) -> ReplicaProgram:
        return ReplicaProgram(
            self._routing,
            self._stage,
            self._replica,
            lambda batch: micro_batches_of(plan, batch),
            first_batch=first,
            end_batch=end,
            staleness=staleness,
        )

    def _loop(
        self,
        program: ReplicaProgram,
        do: Callable[[Task], None],
        plan: LanePlan,
        feed: Feed | None,
        orders: Orders,
        *,
        training: bool,
    ) -> None:
        self._take_in(program, self._early, plan, training)
        self._early = []
        room = 2 + self._routing.credit(self._stage)
        while True:
            self._take_in(program, self.mesh.receive(0.0), plan, training)
            segment = orders.segment()
            program.extend(segment.end)
            stale = program.staleness_now
            task = program.take()
            if task is not None:
                if training and task.do is Do.FORWARD:
                    self.meter.note_staleness(stale)
                do(task)
                orders.progressed()
            elif program.finished and segment.closed:
                return
            elif not (feed and self._prepare(feed, plan, segment.end, room, training)):
                orders.waiting()
                self._take_in(program, self.mesh.receive(_WAIT_S), plan, training)

    def _take_in(
        self, program: ReplicaProgram, arrived: list[Arrived], plan: LanePlan, training: bool
    ) -> None:
        for message in arrived:
            if message.kind == FORWARD:
                self._add(message.micro_batch, message.tensors, plan, training)
            else:
                self._gradients[message.micro_batch] = message.tensors
                program.gradient_arrived(message.micro_batch)
        for number in self._inputs.ready():
            program.input_arrived(number)

    def _add(self, number: int, arrived: dict[str, Tensor], plan: LanePlan, training: bool) -> None:
        with self.meter.measure(PREPARE):
            batch = plan.batch_of(number) if training else None
            context = self.stage.context(number, training=training)
            self._inputs.add(number, batch, arrived, context)

    def _prepare(self, feed: Feed, plan: LanePlan, end: int, room: int, training: bool) -> bool:
        """Reads one more micro-batch, if there is room and it is there."""
        if len(self._inputs) >= room:
            return False
        found = feed.take(plan.batch(end).first)
        if found is not None:
            self._add(*found, plan, training)
        return found is not None

    def _feed(self, plan: LanePlan, reader: Prefetch | None, start: int) -> Feed | None:
        if reader is None:
            return None
        lanes = lanes_of_replica(self._replica, self._routing.replicas[0], plan.lanes)
        numbers: Iterator[int] = plan.owned(lanes, start)
        return Feed(reader, numbers, self._converted)

    def _converted(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._like.dtype == torch.float32:
            return batch
        wide = self._like.dtype
        return {n: t.to(wide) if t.is_floating_point() else t for n, t in batch.items()}

    def _here(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """On the device of the stage."""
        return {name: tensor.to(self._like.device) for name, tensor in tensors.items()}

    def _forward(self, number: int) -> None:
        plan = self._layout.train
        arrived, asked = self._inputs.take(number)
        with self.meter.measure(FORWARD_S):
            made = self.stage.forward(micro_batch(plan, number), self._here(arrived), asked)
        if not self._last:
            self._send_forward(number, made)
            return
        self.losses.append((number, float(made[LOSS])))
        self.counts.observe(made, made)

    def _backward(self, number: int) -> None:
        with self.meter.measure(BACKWARD):
            arrived = self._here(self._gradients.pop(number, {}))
            back, rows = self.stage.backward(number, arrived)
        if self._stage > 0:
            self._send_back(number, back)
        with self.meter.measure(SEND):
            for gradients in rows:
                self._lookups.give(gradients)
        span = self._layout.train.span_of(number)
        self.samples += span.stop - span.start

    def _predict(self, number: int, counts: Counts) -> None:
        arrived, asked = self._inputs.take(number)
        with self.meter.measure(PREDICT):
            made = self.stage.predict(number, self._here(arrived), asked)
        if self._last:
            counts.observe(made, made)
        else:
            self._send_forward(number, made)

    def _send_forward(self, number: int, made: dict[str, Tensor]) -> None:
        with self.meter.measure(SEND):
            replica = self._routing.replica(self._stage + 1, number)
            self.mesh.send_forward(replica, number, _on_cpu(made), exact=self._exact)

    def _send_back(self, number: int, gradients: dict[str, Tensor]) -> None:
        with self.meter.measure(SEND):
            replica = self._routing.replica(self._stage - 1, number)
            self.mesh.send_back(replica, number, _on_cpu(gradients))

    def _exact_names(self) -> tuple[str, ...]:
        """What carries no gradient is no activation: it keeps its precision."""
        after = self._layout.stages[self._stage].after
        return tuple(n for n in after.names if n not in after.gradients) if after else ()


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def figures(replica: Replica) -> dict[str, Any]:
    """What a replica reports of itself."""
    staleness = {str(batches): count for batches, count in replica.meter.staleness.items()}
    return {"meter": replica.meter.figures(), "samples": replica.samples, "staleness": staleness}
