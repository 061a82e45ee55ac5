"""The loop of one worker: what has arrived, what is next, and doing it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from heterps.data.lane_plan import LanePlan, lanes_of_replica
from heterps.data.prefetch import Prefetch
from heterps.models.batch import LOSS
from heterps.runtime.channel import FORWARD, Arrived, Mesh
from heterps.runtime.commits import Commits
from heterps.runtime.emulation import Emulation
from heterps.runtime.inputs import Feed, Inputs
from heterps.runtime.layout import Layout, micro_batch, micro_batches_of
from heterps.runtime.lookups import Lookups
from heterps.runtime.meter import BACKWARD, COMMIT, PREDICT, PREPARE, SEND, Meter
from heterps.runtime.meter import FORWARD as FORWARD_S
from heterps.runtime.metrics import Counts
from heterps.runtime.orders import Orders
from heterps.runtime.pipeline import Do, ReplicaProgram, Task
from heterps.runtime.stage import Cut, Stage

_WAIT_S = 0.5


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
        emulation: Emulation | None = None,
        exchanged_bytes: float = 0.0,
        *,
        far_rows: bool = False,
    ) -> None:
        """``like`` is a tensor of the type and on the device that the stage computes with;
        ``exchanged_bytes`` is what this replica moves in a commit. ``far_rows`` come from other
        hosts: they are asked for one micro-batch at a time, while others are worked on. Those of
        this host take the cores of whoever computes, and are asked for when there is nothing else
        to do."""
        self.stage = stage
        self.mesh = mesh
        self.meter = Meter()
        self.losses: list[tuple[int, float]] = []  # of micro-batches, since they were last taken
        self.samples = 0
        self.layout = layout
        self._routing = layout.routing
        self._stage, self._replica = place
        self._last = self._stage == self._routing.stages - 1
        self._inputs = inputs
        self._lookups = lookups
        self._new_counts = counts
        self.counts = counts()
        self._like = like
        self._emulation = emulation or Emulation()
        self._far_rows = far_rows
        own = layout.stages[self._stage]
        self._exact_before, self._exact = _exact_names(own.before), _exact_names(own.after)
        self._gradients: dict[int, dict[str, Tensor]] = {}
        self._inbox: deque[Arrived] = deque()  # has come, and has yet to be taken in
        self._commits = Commits(stage, self._emulation, self.meter, inputs.wake, exchanged_bytes)

    def idle(self, timeout_s: float) -> None:
        """Answers neighbours that connect; what they send is kept for the next pass."""
        self._inbox += self.mesh.receive(timeout_s)

    def train(self, first: int, reader: Prefetch | None, orders: Orders) -> None:
        """From batch ``first`` to the end of the segment, which may move while it runs."""
        plan = self.layout.train
        staleness = self.layout.staleness
        end, beside = orders.segment().end, self.stage.beside
        program = self._program(plan, first, end, staleness, beside=beside)

        def do(task: Task) -> None:
            if task.do is Do.FORWARD:
                self._forward(task.number)
            elif task.do is Do.BACKWARD:
                self._backward(task.number)
            elif task.do is Do.WEIGHTS:
                with self._working(BACKWARD):
                    self.stage.finish_backward(task.number)
            elif task.do is Do.SUM:
                self._commits.begin(task.number)
            else:
                self._commit(task.number)
                orders.committed(task.number)

        start = plan.batch(first).first
        with self.meter.training():
            self._loop(program, do, plan, self._feed(plan, reader, start), orders, training=True)
        self._lookups.settle()

    def validate(self, reader: Prefetch | None, orders: Orders) -> Counts:
        """Every micro-batch of the validation set forward, and an empty answer back: what is under
        way stays bounded in the same way."""
        plan = self.layout.validation
        assert plan is not None
        counts = self._new_counts()
        self.stage.refresh()
        end = orders.segment().end
        program = self._program(plan, 0, end, end)

        def do(task: Task) -> None:
            if task.do is Do.FORWARD:
                self._predict(task.number, counts)
            elif task.do is Do.BACKWARD and self._stage > 0:
                self._send_back(task.number, {})

        self._loop(program, do, plan, self._feed(plan, reader, 0), orders, training=False)
        return counts

    @property
    def link_s(self) -> float:
        """For how long its emulated link has been taken."""
        return self._emulation.carried_s

    def figures(self) -> dict[str, Any]:
        """What it reports of itself."""
        staleness = {str(batches): count for batches, count in self.meter.staleness.items()}
        under_way = {"pull_s": self._inputs.pulls.seconds, "push_s": self._lookups.pushes.seconds}
        own = {"unit_s": self._emulation.work_s, "step_s": self._emulation.step_s}
        meter = {**self.meter.figures(), **under_way, **own, "link_s": self.link_s}
        return {"meter": meter, "samples": self.samples, "staleness": staleness}

    def take_losses(self) -> list[tuple[int, float]]:
        losses, self.losses = self.losses, []
        return losses

    def take_counts(self) -> Counts:
        """What was counted since the last call."""
        counts, self.counts = self.counts, self._new_counts()
        return counts

    def _program(
        self, plan: LanePlan, first: int, end: int, staleness: int, *, beside: bool = False
    ) -> ReplicaProgram:
        return ReplicaProgram(
            self._routing,
            self._stage,
            self._replica,
            lambda batch: micro_batches_of(plan, batch),
            first_batch=first,
            end_batch=end,
            staleness=staleness,
            beside=beside,
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
        def serve(seconds: float) -> None:
            self._take_in(program, self.mesh.receive(seconds), plan, training)

        room = 2 + self._routing.credit(self._stage)
        self._emulation.serve = serve
        while True:
            serve(0.0)
            segment = orders.segment()
            program.extend(segment.end)
            task = program.take()
            if task is not None:
                if training and task.do is Do.FORWARD:
                    self.meter.note_staleness(program.staleness_taken)
                do(task)
                orders.progressed()
                if feed and self._far_rows and task.do is Do.BACKWARD:
                    # Rows of batches that have to wait are asked for while this one waits too.
                    end = min(segment.end, program.opened)
                    self._prepare(feed, plan, end, room, training)
            elif program.finished and segment.closed:
                self._emulation.pay()
                self._emulation.settle()
                return
            elif feed and self._prepare(feed, plan, segment.end, room, training):
                continue
            elif not self._emulation.pay():  # which may have brought something
                self._lookups.check()  # a batch that cannot commit is one that nothing follows
                orders.waiting(program.finished)
                wait_s, since = self._emulation.next_due_s(_WAIT_S), time.perf_counter()
                cause = program.why(self._inputs)
                arrived = self.mesh.receive(wait_s)
                if program.waits_for_sum:
                    self.meter.add(COMMIT, time.perf_counter() - since)
                else:
                    self.meter.waited(cause, since)
                self._take_in(program, arrived, plan, training)

    def _take_in(
        self, program: ReplicaProgram, arrived: list[Arrived], plan: LanePlan, training: bool
    ) -> None:
        """All that has come. Work on one of them may let in others meanwhile, which come after."""
        carry = self._emulation.carry
        self._inbox += arrived
        while self._inbox:
            message = self._inbox.popleft()
            number, tensors = message.micro_batch, message.tensors
            if message.kind == FORWARD:
                size = self.mesh.wire_bytes(tensors, self._exact_before)
                carry(size, partial(self._add, number, tensors, plan, training))
            else:
                size = self.mesh.wire_bytes(tensors)
                carry(size, partial(self._gradient, program, number, tensors))
        for number in self._inputs.ready():
            rows = self._inputs.row_bytes(number) if self._emulation.has_link else 0
            if rows:
                carry(rows, partial(program.input_arrived, number))
            else:  # it has waited for the link already, or there is none
                program.input_arrived(number)
        self._commits.take_in(program.sum_arrived)
        self._emulation.run_due()

    def _gradient(self, program: ReplicaProgram, number: int, arrived: dict[str, Tensor]) -> None:
        self._gradients[number] = arrived
        program.gradient_arrived(number)

    @contextmanager
    def _working(self, purpose: str) -> Iterator[None]:
        """A piece of work, as long as it takes a unit of this type."""
        with self.meter.measure(purpose), self._emulation.work():
            yield
        self.meter.add(purpose, self._emulation.take_owed_s())

    def _add(self, number: int, arrived: dict[str, Tensor], plan: LanePlan, training: bool) -> None:
        with self._working(PREPARE):
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
        plan = self.layout.train
        arrived, asked = self._inputs.take(number)
        with self._working(FORWARD_S):
            made = self.stage.forward(micro_batch(plan, number), self._here(arrived), asked)
        if not self._last:
            self._send_forward(number, made)
            return
        self.losses.append((number, float(made[LOSS])))
        self.counts.observe(made, made)

    def _backward(self, number: int) -> None:
        with self._working(BACKWARD):
            arrived = self._here(self._gradients.pop(number, {}))
            back, rows = self.stage.backward(number, arrived)
        if self._stage > 0:
            self._send_back(number, back)
        for gradients in rows:
            size = self._lookups.wire_bytes(gradients)
            self._leave(size, partial(self._lookups.give, gradients))
        span = self.layout.train.span_of(number)
        self.samples += span.stop - span.start

    def _commit(self, batch: int) -> None:
        self._commits.commit(batch)
        self._inputs.committed(batch)
        self.meter.committed()

    def _predict(self, number: int, counts: Counts) -> None:
        arrived, asked = self._inputs.take(number)
        with self._working(PREDICT):
            made = self.stage.predict(number, self._here(arrived), asked)
        if self._last:
            counts.observe(made, made)
        else:
            self._send_forward(number, made)

    def _send_forward(self, number: int, made: dict[str, Tensor]) -> None:
        replica = self._routing.replica(self._stage + 1, number)
        send = partial(self.mesh.send_forward, exact=self._exact)
        size = self.mesh.wire_bytes(made, self._exact)
        self._leave(size, lambda: send(replica, number, _on_cpu(made)))

    def _send_back(self, number: int, gradients: dict[str, Tensor]) -> None:
        replica = self._routing.replica(self._stage - 1, number)
        send = self.mesh.send_back
        size = self.mesh.wire_bytes(gradients)
        self._leave(size, lambda: send(replica, number, _on_cpu(gradients)))

    def _leave(self, size_bytes: int, send: Callable[[], None]) -> None:
        """Sends now, or when an emulated link would have carried it."""

        def sent() -> None:
            with self.meter.measure(SEND), self._emulation.work(sends=True):
                send()

        self._emulation.pay()
        self._emulation.carry(size_bytes, sent, leaves=True)


def _exact_names(cut: Cut | None) -> tuple[str, ...]:
    """What carries no gradient is no activation: it keeps its precision."""
    return tuple(n for n in cut.names if n not in cut.gradients) if cut else ()


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}
