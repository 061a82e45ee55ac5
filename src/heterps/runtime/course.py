"""How a run is divided: where its segments end, when it is validated, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass

from heterps.job.spec import Job
from heterps.runtime.layout import Layout


@dataclass(frozen=True)
class Course:
    """``layout`` is the present one: with each arrival, where data are followed, there is
    another."""

    job: Job
    layout: Layout

    def segment_end(self, first: int) -> int:
        """Of the one that begins there, unless it is cut short."""
        every = self.job.snapshot.every
        ends = [self._next_validation(first), self.layout.batches]
        return min([*ends, *([(first // every + 1) * every] if every else [])])

    def is_last(self, reached: int) -> bool:
        """Of a folder that is followed, nobody knows."""
        return not self.job.follows and reached == self.layout.batches

    def validation_is_due(self, reached: int) -> bool:
        if self.layout.validation is None:
            return False
        return reached == self._next_validation(reached - 1) or self.is_last(reached)

    def samples_left(self, done: int) -> float:
        """Of a folder that is followed: if what arrives is as large as the last."""
        epochs, plan = self.layout.epochs, self.layout.train
        if self.job.follows:
            epochs = self.job.workload.epochs
            return max(0.0, epochs - plan.epoch) * plan.samples
        return epochs * plan.samples - done

    def _next_validation(self, first: int) -> int:
        if self.layout.validation is None:
            return self.layout.batches
        every = self.job.validation.every
        return (first // every + 1) * every if every else self.layout.train.epoch_end(first)
