"""The job: what to train, on what, under which limits."""

from __future__ import annotations

from typing import Any

from heterps.job.fields import Amount, Count, Positive, Record
from heterps.job.resources import Cluster


class Workload(Record):
    """How much is trained, and how fast at the least (samples per second)."""

    batch_size: Positive
    samples_per_epoch: Amount
    epochs: Amount
    min_throughput: Amount = 0.0
    overhead_per_hour: Amount = 0.0

    @property
    def samples(self) -> float:
        """Over all epochs."""
        return self.samples_per_epoch * self.epochs


class Job(Record):
    """A job file with its parts in place. ``profile`` and ``plan`` are kept as they were read: the
    packages that own them check them."""

    workload: Workload
    cluster: Cluster
    profile: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    seed: Count = 0
