"""What one replica of a simulated pipeline does next: the order that a real worker keeps, at a cost
that does not grow with the number of micro-batches of a batch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

FORWARD, BACKWARD, COMMIT, SUM, WEIGHTS = range(5)
NONE = -1
# Why a replica has nothing to do; COMMITTING is waiting for a sum that nothing can go on without.
INPUT, ROWS, CREDIT, STALENESS, GRADIENTS, COMMITTING = (
    "input", "rows", "credit", "staleness", "gradients", "commit",
)  # fmt: skip
CAUSES = (INPUT, ROWS, CREDIT, STALENESS, GRADIENTS, COMMITTING)


@dataclass(frozen=True)
class Shape:
    """A pipeline without its times: ``lanes`` and ``replicas`` say who works on what; ``far``: on
    different hosts."""

    lanes: int
    replicas: tuple[int, ...]
    micro_batches: int
    staleness: int
    batches: int
    far: bool = False

    def lasting(self, batches: int) -> Shape:
        return replace(self, batches=batches)

    def replica(self, stage: int, micro_batch: int) -> int:
        return micro_batch % self.lanes % self.replicas[stage]

    def credit(self, stage: int) -> int:
        """How many micro-batches a replica may have sent on without their gradients."""
        after = sum(self.replicas[stage:])
        return (4 if self.far else 2) * -(-after // self.replicas[stage])


class ReplicaQueue:
    """Forward in order as far as input, credit and staleness allow, backward before forward,
    gradients of weights last, a sum once a batch is through and a commit when that is there: what
    ``heterps.runtime.pipeline.ReplicaProgram`` does."""

    __slots__ = (
        "_batches", "_first", "_gradients", "_in_flight", "_lanes", "_last",
        "_per_batch", "_staleness", "_stride", "_summed", "_summing", "_total", "_weights",
        "arrived", "committed", "credit", "next", "ready",
    )  # fmt: skip

    def __init__(self, shape: Shape, stage: int, replica: int) -> None:
        self._first, self._stride, self._lanes = replica, shape.replicas[stage], shape.lanes
        self._per_batch, self._batches = shape.micro_batches, shape.batches
        self._total = shape.micro_batches * shape.batches
        self._staleness = shape.staleness
        self._last = stage == len(shape.replicas) - 1
        self.credit = shape.credit(stage)
        self.arrived: set[int] = set()  # but not necessarily with its rows
        self.ready: set[int] = set()
        self._gradients: set[int] = set()
        self._in_flight: deque[int] = deque()
        self._weights: deque[int] = deque()
        self.next = replica if replica < self._total else NONE
        self.committed = self._summing = self._summed = -1

    def following(self, micro_batch: int) -> int:
        """The one of its own after it, or NONE."""
        lane = micro_batch % self._lanes
        if lane + self._stride < self._lanes:
            found = micro_batch + self._stride
        else:
            found = micro_batch - lane + self._lanes + self._first
        return found if found < self._total else NONE

    def gradient_arrived(self, micro_batch: int) -> None:
        self._gradients.add(micro_batch)

    def sum_arrived(self) -> None:
        self._summed = self._summing

    def take(self) -> tuple[int, int] | None:
        """What to do and with which micro-batch (or batch); it counts as done."""
        flight = self._in_flight
        if flight and (self._last or flight[0] in self._gradients):
            at = flight.popleft()
            self._gradients.discard(at)
            self._weights.append(at)
            return BACKWARD, at
        open_batch = self.committed + 1
        if open_batch <= self._summed:
            self.committed = open_batch
            return COMMIT, open_batch
        if self._summing < open_batch < self._batches and self._through(open_batch):
            if self._weights and self._weights[0] < (open_batch + 1) * self._per_batch:
                return WEIGHTS, self._weights.popleft()
            self._summing = open_batch
            return SUM, open_batch
        at = self.next
        room = len(flight) < self.credit and len(self._weights) < 2 * self.credit
        if at in self.ready and room and self._may_start(at):
            self.ready.discard(at)
            self.arrived.discard(at)
            flight.append(at)
            self.next = self.following(at)
            return FORWARD, at
        return (WEIGHTS, self._weights.popleft()) if self._weights else None

    def why(self) -> str:
        """What it waits for when there is nothing to take."""
        at = self.next
        if not self._staleness and self._summed < self._summing:
            return COMMITTING
        if at == NONE:
            return GRADIENTS
        if not self._may_start(at):
            return STALENESS
        if len(self._in_flight) >= self.credit:
            return CREDIT
        return ROWS if at in self.arrived else INPUT

    def _may_start(self, micro_batch: int) -> bool:
        batch = micro_batch // self._per_batch
        if self._last and batch > self._summing + 1:
            return False
        return batch <= self.committed + 1 + self._staleness

    def _through(self, batch: int) -> bool:
        end = (batch + 1) * self._per_batch
        if self.next != NONE and self.next < end:
            return False
        return not self._in_flight or self._in_flight[0] >= end
