"""The plan: what is decided, what it costs, and how sure we are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from heterps.errors import InputError, UnknownNameError
from heterps.job.fields import Amount, Count, Positive, Record, Text
from heterps.planning.cost_model import Cost, StageCost, evaluate, stages_of
from heterps.planning.problem import Problem


@dataclass(frozen=True)
class Plan:
    """``lower_bound`` is a proven lower bound on the cost of any plan (dollars), None where nothing
    is proven, and ``proven_for`` the digest of the problem that it is of; ``evaluations`` counts
    assignments priced; ``planning_s`` is set by the caller, who owns the clock."""

    method: str
    assignment: tuple[str, ...]
    breakdown: Cost
    lower_bound: float | None = None
    evaluations: int = 0
    planning_s: float | None = None
    proven_for: str | None = None

    @property
    def cost(self) -> float:
        """Dollars for the whole workload."""
        return self.breakdown.dollars

    @property
    def throughput(self) -> float | None:
        return self.breakdown.throughput

    @property
    def seconds(self) -> float:
        return self.breakdown.seconds

    @property
    def stages(self) -> tuple[StageCost, ...]:
        return self.breakdown.stages

    @property
    def units(self) -> tuple[int, ...]:
        return tuple(stage.units for stage in self.stages)

    @property
    def gap(self) -> float | None:
        """How much of the cost is not proven necessary, as a share of it."""
        if self.lower_bound is None:
            return None
        return (self.cost - self.lower_bound) / self.cost if self.cost > 0 else 0.0

    def units_by_type(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for stage in self.stages:
            total[stage.type] += stage.units
        return total

    def named(self, method: str, **changed: Any) -> Plan:
        return replace(self, method=method, **changed)

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "method": self.method,
            "assignment": list(self.assignment),
            "stages": [
                {
                    "first": stage.first,
                    "last": stage.last,
                    "type": stage.type,
                    "units": stage.units,
                    "compute_s": stage.compute_s,
                    "comm_s": stage.comm_s,
                    "throughput": stage.throughput,
                    "dollars": stage.dollars,
                }
                for stage in self.stages
            ],
            "throughput": self.throughput,
            "seconds": self.seconds,
            "cost": self.cost,
            "overhead": self.breakdown.overhead_dollars,
            "cost_per_million_samples": self.breakdown.dollars_per_million_samples,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "proven_for": self.proven_for,
            "evaluations": self.evaluations,
            "planning_s": self.planning_s,
        }


def make_plan(
    problem: Problem, method: str, assignment: Sequence[str], units: Sequence[int], **proof: Any
) -> Plan:
    """A plan whose figures are the cost model's."""
    proven = proof.get("lower_bound") is not None
    digest = problem.digest if proven else None
    breakdown = evaluate(problem, assignment, units)
    return Plan(method, tuple(assignment), breakdown, proven_for=digest, **proof)


class _StageDocument(Record):
    model_config = Record.model_config | {"extra": "ignore"}
    first: Count
    last: Count
    type: Text
    units: Positive


class _PlanDocument(Record):
    model_config = Record.model_config | {"extra": "ignore"}
    method: Text = "given"
    assignment: tuple[Text, ...] | None = None
    stages: tuple[_StageDocument, ...]
    lower_bound: Amount | None = None
    evaluations: Count = 0
    planning_s: Amount | None = None
    proven_for: Text | None = None


class _StagesDocument(Record):
    model_config = Record.model_config | {"extra": "ignore"}
    stages: tuple[_StageDocument, ...]


def read_plan(problem: Problem, document: object, path: str = "plan") -> Plan:
    """A plan from its JSON form, whose stages are enough; its figures are computed anew for
    ``problem``. What was proven for another one is not known of this.

    Raises InputError.
    """
    read = _PlanDocument.parse(document, path)
    assignment = read.assignment
    if assignment is None:
        assignment = _assignment_of(problem, document, path)
    problem.type_indices(assignment, f"{path}.assignment")
    expected = [(stage.first, stage.last, stage.type) for stage in stages_of(assignment)]
    given = [(stage.first, stage.last, stage.type) for stage in read.stages]
    if given != expected:
        raise InputError(f"{path}.stages", f"are {given}, but the assignment makes {expected}")
    for layer, name in enumerate(assignment):
        if name not in problem.profile.layers[layer].on:
            raise InputError(f"{path}.assignment[{layer}]", f"has no figures for '{name}'")
    return make_plan(
        problem,
        read.method,
        assignment,
        [stage.units for stage in read.stages],
        lower_bound=read.lower_bound if read.proven_for == problem.digest else None,
        evaluations=read.evaluations,
        planning_s=read.planning_s,
    )


def _assignment_of(problem: Problem, document: object, path: str) -> tuple[str, ...]:
    """Of a plan that names its stages alone."""
    names = problem.cluster.names
    stages = read_stages(document, names, problem.layers, path)
    for number, ((*_, before, _), (*_, name, _)) in enumerate(pairwise(stages), start=1):
        if name == before:
            said = f"is '{name}' as before it: with a profile, that is one stage; join the two"
            raise InputError(f"{path}.stages[{number}].type", said)
    return tuple(name for first, last, name, _ in stages for _ in range(first, last + 1))


def check_fits(problem: Problem, plan: Plan, path: str = "plan") -> None:
    """Raises InputError for more units than there are, and for layers that fit into no unit."""
    limits = {entry.name: entry.limit for entry in problem.cluster.types}
    used: Counter[str] = Counter()
    for number, stage in enumerate(plan.stages):
        where = f"{path}.stages[{number}]"
        used[stage.type] += stage.units
        if used[stage.type] > limits[stage.type]:
            there = f"more than the {limits[stage.type]} that there are for stages"
            raise InputError(
                f"{where}.units", f"make {used[stage.type]} of '{stage.type}', {there}"
            )
        if stage.last >= problem.kernel.reach[stage.first, problem.types.index(stage.type)]:
            what = f"do not fit into cluster.types.{stage.type}.memory_gib"
            raise InputError(where, f"layers {stage.first} to {stage.last} {what}")


def read_stages(
    document: object, types: Sequence[str], layers: int, path: str = "plan"
) -> list[tuple[int, int, str, int]]:
    """First and last layer, type and units of each stage of a plan for which there is no profile.

    Raises InputError for stages that do not cover ``layers`` layers one after the other.
    """
    read = _StagesDocument.parse(document, path)
    expected = 0
    for index, stage in enumerate(read.stages):
        where = f"{path}.stages[{index}]"
        if stage.type not in types:
            raise UnknownNameError(f"{where}.type", "resource type", stage.type, types)
        if stage.first != expected or stage.last < stage.first:
            raise InputError(where, f"expected it to begin with layer {expected}, and to end after")
        expected = stage.last + 1
    if expected != layers:
        raise InputError(f"{path}.stages", f"are for {expected} layers, the model has {layers}")
    return [(stage.first, stage.last, stage.type, stage.units) for stage in read.stages]
