"""Who works on which micro-batch, and in which order: arithmetic and a state machine, no processes.

Stage i works on micro-batch j in replica (j mod V) mod k_i, V being the number of lanes, and
gradients go back the way activations came. So stages with different numbers of replicas need no
barrier between them, and everyone knows who does what without talking.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import NamedTuple

from heterps.errors import InputError


@dataclass(frozen=True)
class Routing:
    """``replicas`` of each stage, and the ``lanes`` of the run; ``far``: some of those who exchange
    activations are on different hosts."""

    lanes: int
    replicas: tuple[int, ...]
    far: bool = False

    def __post_init__(self) -> None:
        if not self.replicas:
            raise InputError("stages", "expected at least one")
        for stage, count in enumerate(self.replicas):
            if not 1 <= count <= self.lanes:
                problem = f"expected 1 to {self.lanes} replicas (one per lane), got {count}"
                raise InputError(f"stages[{stage}].units", problem)

    @property
    def stages(self) -> int:
        return len(self.replicas)

    def replica(self, stage: int, micro_batch: int) -> int:
        """Which replica of the stage works on the micro-batch."""
        return micro_batch % self.lanes % self.replicas[stage]

    def peers(self, stage: int, replica: int, other: int) -> tuple[int, ...]:
        """The replicas of stage ``other`` that share micro-batches with this one, ascending."""
        lanes = range(replica, self.lanes, self.replicas[stage])
        return tuple(sorted({lane % self.replicas[other] for lane in lanes}))

    def credit(self, stage: int) -> int:
        """How many micro-batches a replica may have sent on without their gradients, such that the
        stages after it can all be at work: two for each replica there, shared by its own. Between
        hosts as many again are on their way."""
        after = sum(self.replicas[stage:])
        return (4 if self.far else 2) * -(-after // self.replicas[stage])


class Do(enum.Enum):
    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHTS = "weights"
    SUM = "sum"
    COMMIT = "commit"


class Task(NamedTuple):
    """``number`` is the micro-batch, or with SUM and COMMIT the batch."""

    do: Do
    number: int


BatchRange = Callable[[int], range]


class ReplicaProgram:
    """What one replica of one stage does next, given what has arrived.

    Forward in ascending order of micro-batches, as far as input is there, the credit allows and the
    batch may start: batch b waits for the commit of b - 1 - ``staleness``. Backward in ascending
    order too, and before forward, so that memory is given back early. That makes the gradients that
    others wait for; those of WEIGHTS follow in the same order when there is nothing else to do, but
    before the commit of their batch, and before forward when too many are left. A batch is
    committed when all its micro-batches here are through, also where there was none: a commit sums
    over all replicas of the stage. ``batches`` maps a batch to its micro-batches.

    Where sums run ``beside`` the work, SUM begins that of a batch, and COMMIT follows once it has
    arrived, with later batches at work in between as far as the staleness allows, one of them in
    the last stage: that has no weights of its own for each. It never comes between a micro-batch's
    way forward and back there, which follow each other.

    The smallest unfinished micro-batch can always go on, in every stage, whatever the credit: no
    replica prefers another one to it. So the pipeline cannot lock up.
    """

    def __init__(
        self,
        routing: Routing,
        stage: int,
        replica: int,
        batches: BatchRange,
        *,
        first_batch: int = 0,
        end_batch: int,
        credit: int | None = None,
        staleness: int = 0,
        beside: bool = False,
    ) -> None:
        self._routing = routing
        self._stage = stage
        self._replica = replica
        self._batches = batches
        self._end = end_batch
        self._credit = routing.credit(stage) if credit is None else credit
        self._staleness = staleness
        self._last = stage == routing.stages - 1
        self._inputs: set[int] = set()
        self._gradients: set[int] = set()
        self._in_flight: deque[int] = deque()
        self._weights: deque[int] = deque()  # have gone backward, but for the gradients of weights
        # Of the micro-batch that went forward last.
        self._batch, self._at = first_batch, batches(first_batch).start - 1
        self._next: tuple[int, int] | None = None
        self._look_ahead()
        self.committed = first_batch - 1
        self._seen = self.committed  # in the weights of the batch that went forward last
        self._beside = beside
        self._summing = self._summed = first_batch - 1  # the last batches that were, and are there

    def input_arrived(self, micro_batch: int) -> None:
        """The activations, or for the first stage the samples, are here: perhaps before this side
        has been told that there is so much to do."""
        self._check(micro_batch, self._inputs)
        self._inputs.add(micro_batch)

    def gradient_arrived(self, micro_batch: int) -> None:
        if micro_batch not in self._in_flight or micro_batch in self._gradients:
            raise ValueError(f"no gradient was due for micro-batch {micro_batch}")
        self._gradients.add(micro_batch)

    def sum_arrived(self) -> None:
        """That of the batch which was given to be summed."""
        if self._summed == self._summing:
            raise ValueError("no sum was due")
        self._summed = self._summing

    def extend(self, end_batch: int) -> None:
        """There is more to do than was known: batches up to ``end_batch``, not included."""
        self._end = max(self._end, end_batch)
        self._look_ahead()

    @property
    def finished(self) -> bool:
        """With all batches that are known of."""
        return self.committed == self._end - 1

    @property
    def staleness_taken(self) -> int:
        """How many batches before that of the last micro-batch that went forward were yet to be
        committed in the weights it goes by."""
        return self._batch - 1 - self._seen

    @property
    def waits_for_sum(self) -> bool:
        """Whether nothing can go on before the sum that is under way has arrived."""
        return self._staleness == 0 and self._summed < self._summing

    @property
    def opened(self) -> int:
        """Batches below this one may go forward now."""
        return self.committed + 2 + self._staleness

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def take(self) -> Task | None:
        """The next task, which is then taken as done; None while there is nothing to do."""
        if self._in_flight and (self._last or self._in_flight[0] in self._gradients):
            micro_batch = self._in_flight.popleft()
            self._gradients.discard(micro_batch)
            self._weights.append(micro_batch)
            return Task(Do.BACKWARD, micro_batch)
        if self.committed < self._summed:
            self.committed += 1
            return Task(Do.COMMIT, self.committed)
        if self._may_sum():
            if self._weights and self._weights[0] < self._batches(self.committed + 1).stop:
                return Task(Do.WEIGHTS, self._weights.popleft())
            self._summing += 1
            if self._beside:
                return Task(Do.SUM, self._summing)
            self.committed = self._summed = self._summing
            return Task(Do.COMMIT, self.committed)
        if self._may_go_forward():
            assert self._next is not None
            if self._last or self._next[0] != self._batch:  # others keep those a batch began with
                self._seen = self.committed
            self._batch, self._at = self._next
            self._inputs.discard(self._at)
            self._in_flight.append(self._at)
            self._next = None
            self._look_ahead()
            return Task(Do.FORWARD, self._at)
        return Task(Do.WEIGHTS, self._weights.popleft()) if self._weights else None

    def why(self, arrived: Container[int] = ()) -> str:
        """What it waits for when there is nothing to take, in the words of the simulator;
        ``arrived`` are inputs whose rows may be missing."""
        if self._next is None:
            return "gradients"
        batch, micro_batch = self._next
        if not self._may_start(batch):
            return "staleness"
        if len(self._in_flight) >= self._credit:
            return "credit"
        return "rows" if micro_batch in arrived else "input"

    def _look_ahead(self) -> None:
        """Finds the next of its own micro-batches, if it is known of."""
        if self._next is not None:
            return
        for batch in range(self._batch, self._end):
            for micro_batch in self._batches(batch):
                mine = self._routing.replica(self._stage, micro_batch) == self._replica
                if mine and micro_batch > self._at:
                    self._next = (batch, micro_batch)
                    return

    def _through(self, batch: int) -> bool:
        """Whether nothing of the batch is left to do here."""
        if self._next is not None and self._next[0] <= batch:
            return False
        return not self._in_flight or self._in_flight[0] >= self._batches(batch).stop

    def _may_sum(self) -> bool:
        """One batch after the other."""
        following = self.committed + 1
        return self._summing < following < self._end and self._through(following)

    def _may_go_forward(self) -> bool:
        if self._next is None or len(self._in_flight) >= self._credit:
            return False
        if len(self._weights) >= 2 * self._credit:  # each keeps what its layers got and gave
            return False
        batch, micro_batch = self._next
        return micro_batch in self._inputs and self._may_start(batch)

    def _may_start(self, batch: int) -> bool:
        """The last stage has one set of gradients beside those that are summed."""
        return batch < self.opened and not (self._last and batch > self._summing + 1)

    def _check(self, micro_batch: int, known: set[int]) -> None:
        here = self._routing.replica(self._stage, micro_batch) == self._replica
        if not here or micro_batch <= self._at or micro_batch in known:
            raise ValueError(f"micro-batch {micro_batch} was not due here")
