"""What layers take in one of two stages, relative to what they take in one stage alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.runtime.engines import MakeEngine
from heterps.runtime.profiling.assemble import Batches
from heterps.runtime.profiling.trial import batches_in, for_trials, has_room, run_trial

AS_FIRST, AS_LAST = "as_first", "as_last"
_MOST_UNITS = 2


@dataclass(frozen=True)
class Pair:
    """Two types, with a stage each of so many ``units``."""

    first: ResourceType
    last: ResourceType
    units: int = 1

    @property
    def stages(self) -> list[tuple[ResourceType, int]]:
        return [(self.first, self.units), (self.last, self.units)]

    def plan(self, layers: int, cut: int) -> dict[str, Any]:
        """As a document; the second stage begins with layer ``cut``."""
        stages = ((0, cut - 1, self.first), (cut, layers - 1, self.last))
        return {
            "stages": [
                {"first": a, "last": b, "type": entry.name, "units": self.units}
                for a, b, entry in stages
            ]
        }


def pairs_of(job: Job, types: Sequence[ResourceType], cores: int) -> list[Pair]:
    """Such that each of the types is the first once and the last once, of those that leave room on
    that many cores: stages that follow each other are of different types, perhaps on different
    hosts. With two units each if they fit, as alone on its core a unit would be quicker."""
    roomy = [
        entry
        for entry in types
        if any(has_room(job, [(entry, 1), (other, 1)], cores) for other in types if other != entry)
    ]
    around = [*roomy[1:], *roomy[:1]]
    m = for_trials(job).workload.micro_batches
    counts = [units for units in range(1, _MOST_UNITS + 1) if m % units == 0]
    pairs = (
        [Pair(first, last, units) for units in counts]
        for first, last in zip(roomy, around, strict=True)
    )
    fitting = ([pair for pair in each if has_room(job, pair.stages, cores)] for each in pairs)
    return [each[-1] for each in fitting if each]


def even_cut(first: Sequence[float], last: Sequence[float]) -> int:
    """Such that both stages have about as long to work, by the seconds of each layer."""
    cuts = range(1, len(first))
    return min(cuts, key=lambda cut: abs(sum(first[:cut]) - sum(last[cut:])))


def time_pair(
    job: Job,
    pair: Pair,
    compute: Mapping[str, Sequence[float]],
    seconds: float,
    make_engine: MakeEngine | None,
) -> tuple[float, float]:
    """How many times as long the first stage and the last one compute as the seconds of their
    layers say, in a run of about so many ``seconds``. Without emulated links: a unit that waits for
    its link most of the time has cold caches, and does not set the pace. Less than once is the pace
    of the host, which was another one when the seconds were measured."""
    first, last = compute[pair.first.name], compute[pair.last.name]
    cut = even_cut(first, last)
    said = sum(first[:cut]), sum(last[cut:])
    batches = Batches(job.workload.micro_batch_size, job.workload.micro_batches)
    short = for_trials(_unlinked(job))
    batch_s = 1.3 * max(said) * short.workload.micro_batches / pair.units
    count = batches_in(seconds, batch_s)
    trial = run_trial(short, pair.plan(len(first), cut), count, make_engine)
    one, two = (batches.micro_batch_s(seen) for seen in trial.stages)
    return max(1.0, one / said[0]), max(1.0, two / said[1])


def _unlinked(job: Job) -> Job:
    changed = {"link_mbps": None, "link_ms": None}
    types = tuple(entry.model_copy(update=changed) for entry in job.cluster.types)
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"types": types})})
