"""Which samples micro-batch j holds: arithmetic alone, without files.

The N samples of an epoch, in its shuffled order, are cut into V lanes of equal length (±1), and
micro-batch j is the next piece of lane j mod V. Micro-batches are numbered through the whole run
without gaps. Where an epoch ends in the middle of a round over the lanes, the next one goes on with
the lane that follows; the lanes that come first in an epoch are the ones with a sample more. So no
micro-batch of a data set is empty, and no batch either.

Epochs of a data set are of one size. Where they are not, as with files that arrive while a run goes
on, each has a plan of its own that goes on where the one before ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from heterps.errors import InputError


class Span(NamedTuple):
    """Samples ``start`` up to ``stop`` (not included) of the shuffled order of ``epoch``."""

    epoch: int
    start: int
    stop: int


class BatchRange(NamedTuple):
    """Micro-batches ``first`` up to ``stop`` (not included), all of one epoch."""

    epoch: int
    first: int
    stop: int


@dataclass(frozen=True)
class LanePlan:
    """``samples`` in an epoch, ``micro_batches`` of ``micro_batch_size`` samples in a batch. It
    begins with ``epoch``, micro-batch ``first`` and batch ``first_batch``; what was before is
    another plan's."""

    samples: int
    lanes: int
    micro_batch_size: int
    micro_batches: int = 1
    epoch: int = 0
    first: int = 0
    first_batch: int = 0

    def __post_init__(self) -> None:
        for name in ("samples", "lanes", "micro_batch_size", "micro_batches"):
            if getattr(self, name) < 1:
                raise InputError(name, f"expected 1 or more, got {getattr(self, name)}")

    @cached_property
    def per_epoch(self) -> int:
        """Micro-batches in an epoch."""
        shortest, longer = divmod(self.samples, self.lanes)
        rounds, rest = divmod(shortest, self.micro_batch_size)
        return rounds * self.lanes + (self.lanes if rest else longer)

    @property
    def batches_per_epoch(self) -> int:
        return -(-self.per_epoch // self.micro_batches)

    def then(self, samples: int) -> LanePlan:
        """What follows after one epoch, with another number of samples."""
        return replace(
            self,
            samples=samples,
            epoch=self.epoch + 1,
            first=self.first + self.per_epoch,
            first_batch=self.first_batch + self.batches_per_epoch,
        )

    def lane_of(self, j: int) -> int:
        return j % self.lanes

    def epoch_of(self, j: int) -> int:
        return self.epoch + (j - self.first) // self.per_epoch

    def lane_span(self, epoch: int, lane: int) -> Span:
        """The samples of a lane in an epoch."""
        shortest, longer = divmod(self.samples, self.lanes)
        turn = (lane - self._start(epoch)) % self.lanes
        start = turn * shortest + min(turn, longer)
        return Span(epoch, start, start + shortest + (turn < longer))

    def span_of(self, j: int) -> Span:
        """The samples of micro-batch j."""
        epoch = self.epoch_of(j)
        within = j - self._start(epoch)
        _, start, stop = self.lane_span(epoch, self.lane_of(j))
        start += within // self.lanes * self.micro_batch_size
        return Span(epoch, start, min(start + self.micro_batch_size, stop))

    def batch(self, number: int) -> BatchRange:
        """The micro-batches of a batch; batches are numbered through the run as well."""
        epochs, within = divmod(number - self.first_batch, self.batches_per_epoch)
        epoch = self.epoch + epochs
        start = self._start(epoch)
        first = start + within * self.micro_batches
        return BatchRange(epoch, first, min(first + self.micro_batches, start + self.per_epoch))

    def batch_of(self, j: int) -> int:
        """The number of the batch that micro-batch j belongs to."""
        epochs, within = divmod(j - self.first, self.per_epoch)
        before = self.first_batch + epochs * self.batches_per_epoch
        return before + within // self.micro_batches

    def epoch_end(self, number: int) -> int:
        """The first batch after the epoch that a batch belongs to."""
        epochs = (number - self.first_batch) // self.batches_per_epoch + 1
        return self.first_batch + epochs * self.batches_per_epoch

    def _start(self, epoch: int) -> int:
        """The first micro-batch of an epoch."""
        return self.first + (epoch - self.epoch) * self.per_epoch

    def batch_samples(self, number: int) -> int:
        """How many samples a batch holds: what its gradients are divided by."""
        _, first, stop = self.batch(number)
        spans = (self.span_of(j) for j in range(first, stop))
        return sum(span.stop - span.start for span in spans)

    def owned(self, lanes: Collection[int], start: int = 0) -> Iterator[int]:
        """The micro-batches of the given lanes from ``start`` on, without end."""
        turns = sorted((lane - start) % self.lanes for lane in set(lanes))
        while turns:
            yield from (start + turn for turn in turns)
            start += self.lanes

    def cursors(self, next_micro_batch: int) -> tuple[int, ...]:
        """For each lane how many of its micro-batches come before ``next_micro_batch``."""
        return tuple(
            (next_micro_batch - lane + self.lanes - 1) // self.lanes for lane in range(self.lanes)
        )

    def resume(self, cursors: Sequence[int]) -> int:
        """The first micro-batch that is still to be read. Raises InputError for cursors of another
        number of lanes, or that no run can have left.
        """
        if len(cursors) != self.lanes:
            problem = f"expected {self.lanes}, one for each lane, got {len(cursors)}"
            raise InputError("cursors", problem)
        start = sum(cursors)
        if min(cursors) < 0 or tuple(cursors) != self.cursors(start):
            raise InputError("cursors", "the lanes are not within one micro-batch of each other")
        return start


def lanes_of_replica(replica: int, replicas: int, lanes: int) -> tuple[int, ...]:
    """The lanes that a replica of the first stage owns: lane v belongs to replica v mod k."""
    return tuple(range(replica, lanes, replicas))
