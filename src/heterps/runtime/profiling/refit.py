"""A profile that fits what a run has shown: every layer of a stage by measured over predicted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.errors import InputError
from heterps.planning.cost_model import StageCost
from heterps.planning.plan import read_plan
from heterps.planning.ports import more_than_layers
from heterps.planning.problem import Problem
from heterps.planning.profile import Profile
from heterps.runtime.profiling.observed import StageSeconds, observe
from heterps.runtime.run_folder import RunFolder

REFITTED = "refitted"
_MOST = 100.0  # times; beyond that the figures do not mean the same


@dataclass(frozen=True)
class StageFactors:
    """Measured over predicted, of one stage of a run; ``comm`` is 1 where no link was seen."""

    type: str
    units: int
    compute: float
    comm: float


def refit_profile(run: Path) -> tuple[Profile, list[StageFactors]]:
    """The profile of a run refitted, and what it was off by. Raises InputError for a run without a
    profile, or too short."""
    folder = RunFolder.open(run)
    job = folder.job
    if job.profile is None:
        raise InputError(str(run), "was made without a profile: there is nothing to refit")
    problem = Problem.of(job)
    plan = read_plan(problem, folder.plan)
    document = problem.profile.as_document()
    factors = []
    more = more_than_layers(problem.profile, [(stage.type, stage.units) for stage in plan.stages])
    for stage, seen, each in zip(plan.stages, observe(run), more, strict=True):
        factors.append(_factors(problem, stage, seen, *each))
        for layer in document["layers"][stage.first : stage.last + 1]:
            _scale(layer["on"][stage.type], factors[-1])
        source = document.get("types", {}).get(stage.type)
        if source is not None:
            source["source"] = REFITTED
            source.pop("key", None)  # it is no longer what would be measured
    return Profile.parse(document | {"source": REFITTED}, "profile"), factors


def _factors(
    problem: Problem, stage: StageCost, seen: StageSeconds, beside_s: float, crowd: float
) -> StageFactors:
    """By the part that parallelises: what is left of compute is a replica's step once a batch,
    which in a run cannot be told from its waiting for the others."""
    batch = problem.workload.batch_size
    own = problem.profile.layers[stage.first : stage.last + 1]
    on = [layer.on[stage.type] for layer in own]
    predicted = (
        batch / problem.profile.batch_size * sum(f.compute_s * (f.alpha + crowd) for f in on)
    )
    predicted += beside_s * problem.workload.micro_batches
    link_s = seen.link_s * batch / stage.units
    return StageFactors(
        stage.type,
        stage.units,
        _ratio(seen.work_s * batch, predicted),
        _ratio(link_s, stage.comm_s) if link_s else 1.0,
    )


def _ratio(measured: float, predicted: float) -> float:
    if not predicted:
        return 1.0
    return min(_MOST, max(1 / _MOST, measured / predicted))


def _scale(figures: dict[str, Any], found: StageFactors) -> None:
    figures["compute_s"] *= found.compute
    for name in ("comm_s", "transfer_s"):
        figures[name] *= found.comm
