"""A run as every process of it has to know it: stages, lanes, batches, and who does what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heterps.data.lane_plan import LanePlan
from heterps.runtime.pipeline import Routing
from heterps.runtime.stage import Cut, MicroBatch

MIN_LANES = 16


@dataclass(frozen=True)
class StageLayout:
    """Layers ``first`` to ``last``, both included, on ``units`` of a resource type."""

    first: int
    last: int
    type: str
    units: int
    before: Cut | None = None
    after: Cut | None = None


@dataclass(frozen=True)
class Layout:
    """``batches`` is how many the run has at the most; ``tables`` counts the layers on each;
    ``far``: stages that follow each other are on different hosts."""

    stages: tuple[StageLayout, ...]
    train: LanePlan
    validation: LanePlan | None
    batches: int
    staleness: int
    tables: Mapping[str, int]
    far: bool = False

    @property
    def routing(self) -> Routing:
        return Routing(self.train.lanes, tuple(stage.units for stage in self.stages), self.far)

    @property
    def workers(self) -> list[tuple[int, int]]:
        """Stage and replica of each worker; its number is its place here."""
        return [(s, r) for s, stage in enumerate(self.stages) for r in range(stage.units)]

    @property
    def epochs(self) -> float:
        return self.batches / self.train.batches_per_epoch

    def parts(self, batch: int) -> dict[str, int]:
        """How many parts of gradients each table gets for a batch."""
        _, first, stop = self.train.batch(batch)
        return {name: layers * (stop - first) for name, layers in self.tables.items()}

    def as_fields(self) -> dict[str, Any]:
        """For a message."""
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Layout:
        stages = tuple(
            StageLayout(**{**stage, "before": _cut(stage["before"]), "after": _cut(stage["after"])})
            for stage in fields["stages"]
        )
        validation = fields["validation"]
        return cls(
            stages,
            LanePlan(**fields["train"]),
            None if validation is None else LanePlan(**validation),
            fields["batches"],
            fields["staleness"],
            dict(fields["tables"]),
            fields["far"],
        )


def micro_batch(plan: LanePlan, number: int) -> MicroBatch:
    """Micro-batch ``number`` with its batch and its share of it."""
    batch = plan.batch_of(number)
    span = plan.span_of(number)
    return MicroBatch(number, batch, (span.stop - span.start) / plan.batch_samples(batch))


def micro_batches_of(plan: LanePlan, batch: int) -> range:
    _, first, stop = plan.batch(batch)
    return range(first, stop)


def _cut(fields: Mapping[str, Any] | None) -> Cut | None:
    return None if fields is None else Cut(tuple(fields["names"]), tuple(fields["gradients"]))
