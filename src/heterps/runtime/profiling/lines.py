"""What a micro-batch takes one of several stages beyond what its layers take in one stage alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import mean
from typing import Any

from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.runtime.engines import MakeEngine
from heterps.runtime.profiling.assemble import Batches
from heterps.runtime.profiling.trial import batches_in, for_trials, has_room, run_trial

FIRST, MIDDLE, LAST = "first_stage_s", "middle_stage_s", "last_stage_s"
_MOST_UNITS = 2
_STALENESS = 2  # such that all stages are at work at the same time


@dataclass(frozen=True)
class Line:
    """Stages one after the other, of these ``types`` and so many ``units`` each."""

    types: tuple[ResourceType, ...]
    units: tuple[int, ...]

    @property
    def names(self) -> str:
        return ", ".join(entry.name for entry in self.types)

    @property
    def stages(self) -> list[tuple[ResourceType, int]]:
        return list(zip(self.types, self.units, strict=True))

    @property
    def places(self) -> list[str]:
        """What the figures of its stages are called."""
        return [FIRST, *[MIDDLE] * (len(self.types) - 2), LAST]

    def plan(self, layers: int, cuts: Sequence[int]) -> dict[str, Any]:
        """As a document; the stages after the first begin with the layers ``cuts``."""
        borders = pairwise([0, *cuts, layers])
        return {
            "stages": [
                {"first": first, "last": end - 1, "type": entry.name, "units": units}
                for (first, end), (entry, units) in zip(borders, self.stages, strict=True)
            ]
        }


def lines_of(job: Job, types: Sequence[ResourceType], cores: int, layers: int) -> list[Line]:
    """Such that each of the types is in every place of two stages and of three once, of those that
    leave room on that many cores: stages that follow each other are of different types, perhaps on
    different hosts. With two units for as many of the stages as there is room for: the fewer are at
    work, the quicker each of them is."""
    roomy = [
        entry
        for entry in types
        if any(has_room(job, [(entry, 1), (other, 1)], cores) for other in types if other != entry)
    ]
    neighbours = list(zip(roomy, [*roomy[1:], *roomy[:1]], strict=True)) if len(roomy) > 1 else []
    wanted = [*neighbours, *((after, entry, after) for entry, after in neighbours)]
    m = for_trials(job).workload.micro_batches
    most = max(units for units in range(1, _MOST_UNITS + 1) if m % units == 0)
    lines = (_filled(job, each, most, cores) for each in wanted if len(each) <= layers)
    return [line for line in lines if line is not None]


def _filled(job: Job, types: tuple[ResourceType, ...], most: int, cores: int) -> Line | None:
    """With so many units in the first stages, as far as there is room."""
    more = range(len(types) + 1)
    tried = (Line(types, (most,) * n + (1,) * (len(types) - n)) for n in more)
    fitting = [line for line in tried if has_room(job, line.stages, cores)]
    return fitting[-1] if fitting else None


def even_cuts(seconds: Sequence[Sequence[float]], units: Sequence[int]) -> tuple[int, ...]:
    """Such that no unit has much longer to work than others, by the seconds of each layer on the
    type of each stage, and so many units of it."""
    layers = len(seconds[0])

    def longest(cuts: tuple[int, ...]) -> float:
        return max(s / k for s, k in zip(stage_seconds(seconds, cuts), units, strict=True))

    return min(combinations(range(1, layers), len(seconds) - 1), key=longest)


def stage_seconds(seconds: Sequence[Sequence[float]], cuts: Sequence[int]) -> list[float]:
    """What the layers of each stage take together, on its type."""
    borders = pairwise([0, *cuts, len(seconds[0])])
    return [sum(own[a:b]) for own, (a, b) in zip(seconds, borders, strict=True)]


@dataclass(frozen=True)
class Timed:
    """A run of a line: what the thread of each stage did for a micro-batch, and what the seconds of
    its layers ``said``."""

    line: Line
    said: Sequence[float]
    took: Sequence[float]

    def beside_s(self, pace: Mapping[str, float]) -> list[float]:
        """What each stage took beyond its layers, where these took ``pace`` times what was said at
        about the same time: in seconds of the pace at which they take what was said."""
        each = zip(self.line.types, self.said, self.took, strict=True)
        return [took / pace[entry.name] - said for entry, said, took in each]


Compute = Callable[[Line], Sequence[Sequence[float]]]


def time_line(
    job: Job, line: Line, compute: Compute, seconds: float, make_engine: MakeEngine | None
) -> Timed:
    """In a run of about so many ``seconds``; ``compute`` gives what each layer would take for a
    micro-batch in each of its stages. With a staleness: a stage that sets the pace is at work while
    others are, and shares caches and memory with those on its host. Without emulated links: a unit
    that waits for its link most of the time has cold caches, and does not set the pace."""
    own = compute(line)
    cuts = even_cuts(own, line.units)
    said = stage_seconds(own, cuts)
    batches = Batches(job.workload.micro_batch_size, job.workload.micro_batches)
    short = _overlapping(for_trials(_unlinked(job)))
    longest_s = max(s / units for s, units in zip(said, line.units, strict=True))
    batch_s = 1.3 * longest_s * short.workload.micro_batches
    count = batches_in(seconds, batch_s)
    trial = run_trial(short, line.plan(len(own[0]), cuts), count, make_engine)
    return Timed(line, said, [batches.micro_batch_s(seen) for seen in trial.stages])


def in_turns(
    lines: Sequence[Line],
    before: Mapping[str, float],
    time: Callable[[Line], Timed],
    pace: Callable[[], Mapping[str, float]],
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Of each type, what stages take beyond their layers by place, at the pace of the seconds that
    are known of the layers; and what these take in the mean over all that time, relative to those
    seconds. ``pace`` gives that of now, ``before`` is of the beginning: a host is quicker at times
    and slower at others, so what is compared is measured in turns."""
    paces = [before]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    half = -(-len(lines) // 2)
    for some in filter(None, (lines[:half], lines[half:])):
        timed = [time(line) for line in some]
        paces.append(pace())
        around = _mean(paces[-2:])
        for each in timed:
            for entry, place, seconds in zip(
                each.line.types, each.line.places, each.beside_s(around), strict=True
            ):
                found[entry.name, place].append(seconds)
    beside: dict[str, dict[str, float]] = {name: {} for name in before}
    for (name, place), each_s in found.items():
        beside[name][place] = max(0.0, mean(each_s))  # less is noise
    return beside, _mean(paces)


def _mean(paces: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: mean(pace[name] for pace in paces) for name in paces[0]}


def _overlapping(job: Job) -> Job:
    workload = job.workload.model_copy(update={"staleness": _STALENESS})
    return job.model_copy(update={"workload": workload})


def _unlinked(job: Job) -> Job:
    changed = {"link_mbps": None, "link_ms": None}
    types = tuple(entry.model_copy(update=changed) for entry in job.cluster.types)
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"types": types})})
