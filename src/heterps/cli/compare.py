"""All methods on one problem, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heterps import api
from heterps.cli.progress import Interrupt, ProgressBar
from heterps.errors import HeterPSError, InfeasibleError
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers import METHODS
from heterps.planning.solve import EQUAL


@dataclass(frozen=True)
class Entry:
    """What a method found, with a ``note``; without a plan, that says why there is none."""

    method: str
    plan: Plan | None
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    entries: tuple[Entry, ...]

    @property
    def best(self) -> Plan | None:
        plans = [entry.plan for entry in self.entries if entry.plan is not None]
        return min(plans, key=lambda plan: plan.cost, default=None)

    @property
    def lower_bound(self) -> float | None:
        """The highest bound that any method proved, in dollars."""
        plans = (entry.plan for entry in self.entries if entry.plan is not None)
        return max((p.lower_bound for p in plans if p.lower_bound is not None), default=None)

    @property
    def proven(self) -> bool:
        """Whether the cheapest plan is proven optimal."""
        if self.best is None or self.lower_bound is None:
            return False
        return self.best.cost <= self.lower_bound * (1 + EQUAL)

    def ratio(self, entry: Entry) -> float | None:
        """Cost over the proven bound, or over the cheapest where nothing is proven."""
        if entry.plan is None or self.best is None:
            return None
        base = self.best.cost if self.lower_bound is None else self.lower_bound
        if entry.plan.cost <= base:
            return 1.0
        return entry.plan.cost / base if base > 0 else None

    def as_document(self) -> dict[str, Any]:
        return {
            "lower_bound": self.lower_bound,
            "proven": self.proven,
            "methods": [self._entry_document(entry) for entry in self.entries],
        }

    def _entry_document(self, entry: Entry) -> dict[str, Any]:
        if entry.plan is None:
            return {"method": entry.method, "error": entry.note}
        named = {"method": entry.method, "ratio": self.ratio(entry), "note": entry.note}
        return entry.plan.as_document() | named


def compare(
    problem: Problem, seed: int, time_budget: float | None, interrupt: Interrupt
) -> Comparison:
    """Runs every method with the same seed, each with the whole time budget. Raises
    InfeasibleError where there is no plan. Ctrl-C ends the method that runs, and the comparison.
    """
    return Comparison(
        tuple(_run(method, problem, seed, time_budget, interrupt) for method in METHODS)
    )


def _run(
    method: str, problem: Problem, seed: int, time_budget: float | None, interrupt: Interrupt
) -> Entry:
    if interrupt.stop():
        return Entry(method, None, "not run: interrupted")
    try:
        with ProgressBar(method, time_budget) as bar:
            plan = api.plan(problem, method, seed, time_budget, bar.report, stop=interrupt.stop)
    except InfeasibleError:
        raise
    except HeterPSError as error:
        return Entry(method, None, str(error))
    notes = ["interrupted"] if interrupt.stop() else []
    if plan.method != method:  # such as the type of single-type
        notes.append(plan.method)
    return Entry(method, plan, ", ".join(notes))
