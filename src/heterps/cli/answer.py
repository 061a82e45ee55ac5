"""What ``heterps plan`` finds out about one file."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heterps import api
from heterps.cli.compare import Comparison, compare
from heterps.cli.errors import InterruptedEarlyError
from heterps.cli.profile import ensure_profile
from heterps.cli.progress import Interrupt, ProgressBar
from heterps.errors import HeterPSError, InputError
from heterps.planning.explain import Explanation, explain
from heterps.planning.frontier import Frontier, frontier
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.simulate import simulate
from heterps.planning.simulated import SimulatedPlan, cheapest_simulated
from heterps.planning.simulation import Simulation

# An explanation takes no longer; what it has not proven by then, it says.
_EXPLAIN_S, _EXPLAIN_WORK = 2.0, 200_000_000


@dataclass(frozen=True)
class Request:
    """The options that say what is wanted; they hold for every file."""

    method: str
    seed: int | None
    time_budget: float | None
    assignment: tuple[str, ...] | None
    compare: bool
    explain: bool
    frontier: bool
    problem_files: bool
    simulated: bool = False
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    file: Path
    problem: Problem
    plan: Plan
    comparison: Comparison | None
    explanation: Explanation | None
    frontier: Frontier | None
    simulation: Simulation | str | None = None  # or why there is none
    simulated_cost: float | None = None  # dollars at that speed, where it was chosen by it

    def as_document(self, *, frontier: bool) -> dict[str, Any]:
        """The JSON form: a plan with the file it is for, or the plans of all methods."""
        document: dict[str, Any] = {"problem": str(self.file)}
        document |= (self.comparison or self.plan).as_document()
        if isinstance(self.simulation, Simulation):
            document["simulated"] = self.simulation.samples_per_s
        if self.simulated_cost is not None:
            document["simulated_cost"] = self.simulated_cost
        if self.explanation is not None:
            document["explanation"] = self.explanation.as_document()
        if frontier and self.frontier is not None:
            document["frontier"] = [plan.as_document() for plan in self.frontier.plans]
        return document


def answer(file: Path, request: Request, interrupt: Interrupt) -> Answer:
    """Raises HeterPSError."""
    if not request.problem_files:
        ensure_profile(file, list(request.changes))
    kind = False if request.problem_files else None
    problem, seed = api.read_problem(file, job=kind, changes=request.changes)
    seed = seed if request.seed is None else request.seed
    comparison = None
    if request.compare:
        comparison = compare(problem, seed, request.time_budget, interrupt)
        if comparison.best is None and interrupt.asked:
            raise InterruptedEarlyError(f"{file}: interrupted before any method had a plan")
        if comparison.best is None:
            raise HeterPSError(f"{file}: no method found a plan")
        plan = comparison.best
    elif request.assignment is not None:
        plan = _provision(problem, request.assignment)
    else:
        plan = _plan(problem, seed, request, interrupt)
    judged = _simulated(problem, plan, request, interrupt) if request.simulated else None
    plan = judged.plan if judged is not None else plan
    explanation = _explain(problem, plan, interrupt) if request.explain else None
    curve = frontier(problem, stop=interrupt.stop) if request.frontier else None
    simulation = None if comparison else _simulate(problem, plan)
    cost = judged.cost if judged is not None else None
    return Answer(file, problem, plan, comparison, explanation, curve, simulation, cost)


def _simulate(problem: Problem, plan: Plan) -> Simulation | str | None:
    """Only where the job says how a batch is cut."""
    if "micro_batches" not in problem.workload.model_fields_set:
        return None
    try:
        return simulate(problem, plan)
    except InputError as error:
        return f"not possible: {error}"


def _plan(problem: Problem, seed: int, request: Request, interrupt: Interrupt) -> Plan:
    budget = request.time_budget
    with ProgressBar(request.method, budget) as bar:
        return api.plan(problem, request.method, seed, budget, bar.report, stop=interrupt.stop)


def _simulated(
    problem: Problem, plan: Plan, request: Request, interrupt: Interrupt
) -> SimulatedPlan:
    if "micro_batches" not in problem.workload.model_fields_set:
        said = "is missing: --simulated has to know into how many a batch is cut"
        raise InputError("workload.micro_batches", said)
    started, before = time.monotonic(), plan.planning_s or 0.0
    left = math.inf if request.time_budget is None else request.time_budget - before

    def stop() -> bool:
        return interrupt.stop() or time.monotonic() - started > left

    with ProgressBar("simulated", None) as bar:
        found = cheapest_simulated(problem, plan, stop=stop, report=bar.report)
    took = before + time.monotonic() - started
    return replace(found, plan=replace(found.plan, planning_s=took))


def _provision(problem: Problem, assignment: tuple[str, ...]) -> Plan:
    started = time.monotonic()
    plan = provision(problem, assignment)
    return replace(plan, planning_s=time.monotonic() - started)


def _explain(problem: Problem, plan: Plan, interrupt: Interrupt) -> Explanation:
    deadline = time.monotonic() + _EXPLAIN_S

    def stop() -> bool:
        return interrupt.stop() or time.monotonic() >= deadline

    return explain(problem, plan, max_work=_EXPLAIN_WORK, stop=stop)
