"""Plans, explanations, comparisons and frontiers as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from heterps.cli.compare import Comparison
from heterps.cli.tables import (
    Table,
    duration,
    long_duration,
    money,
    percent,
    print_heading,
    print_table,
    rate,
)
from heterps.planning.cost_model import StageCost
from heterps.planning.explain import Change, Explanation
from heterps.planning.frontier import Frontier
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.ranking import Alternative
from heterps.planning.simulation import Simulation
from heterps.planning.solve import EQUAL

_STAGE_TITLES = ("#", "layers", "type", "units", "compute", "comm", "samples/s", "dollars")


def print_title(file: Path, problem: Problem) -> None:
    many = "layer" if problem.layers == 1 else "layers"
    types = ", ".join(problem.types)
    print_heading(f"{file}: {problem.layers} {many} of {problem.profile.model} on {types}")
    print()


def print_plan(
    problem: Problem,
    plan: Plan,
    simulation: Simulation | str | None = None,
    simulated_cost: float | None = None,
) -> None:
    """``simulation`` is what was found, or why there is none, if it was asked for;
    ``simulated_cost`` is by what the plan was chosen, if not by the formula's."""
    rows = [
        (
            str(index),
            layers(problem, stage),
            stage.type,
            str(stage.units),
            duration(stage.compute_s),
            duration(stage.comm_s),
            rate(stage.throughput),
            money(stage.dollars),
        )
        for index, stage in enumerate(plan.stages)
    ]
    print_table(Table(_STAGE_TITLES, rows, left=("layers", "type")))
    print()
    lines = totals(problem, plan)
    if simulation is not None:
        said = simulation if isinstance(simulation, str) else simulated(simulation)
        lines.insert(1, ("simulated", said))
    if simulated_cost is not None:
        lines.insert(2, ("at that speed", f"{money(simulated_cost)}, the least that was found"))
    print_lines(lines)


def print_lines(lines: list[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        print(f"{label.ljust(width)}  {text}")


def totals(problem: Problem, plan: Plan) -> list[tuple[str, str]]:
    workload, cost = problem.workload, plan.breakdown
    floor = f"floor {rate(workload.min_throughput)}" if workload.min_throughput else "no floor"
    per_million = money(cost.dollars_per_million_samples)
    bill = f"{money(plan.cost)}, {per_million} per million samples"
    if cost.overhead_dollars:
        bill += f", {money(cost.overhead_dollars)} of it overhead"
    return [
        ("throughput", f"{rate(plan.throughput)} samples/s ({floor})"),
        ("time", f"{long_duration(plan.seconds)} for {workload.samples:,.0f} samples"),
        ("cost", bill),
        ("certainty", certainty(plan)),
        ("method", method(plan)),
    ]


def simulated(found: Simulation) -> str:
    """The figure, beside the formula's."""
    share = found.of_predicted
    beside = "" if share is None else f", {100 * share:.3g} % of the formula's"
    how = f"staleness {found.staleness}, {found.micro_batches} micro-batches a batch"
    return f"{rate(found.samples_per_s)} samples/s{beside} ({how})"


def certainty(plan: Plan) -> str:
    if plan.gap is None or plan.lower_bound is None:
        return "nothing is proven about cheaper plans"
    if plan.gap <= EQUAL:
        return "proven optimal: no plan is cheaper"
    return (
        f"at most {percent(plan.gap)} of the cost could be saved "
        f"(proven lower bound {money(plan.lower_bound)})"
    )


def method(plan: Plan) -> str:
    took = "" if plan.planning_s is None else f" in {duration(plan.planning_s)}"
    plural = "" if plan.evaluations == 1 else "s"
    return f"{plan.method}, {plan.evaluations:,} evaluation{plural}{took}"


def layers(problem: Problem, stage: StageCost) -> str:
    """``fc1``, or ``fc1..fc6 (12)``."""
    names = [layer.name for layer in problem.profile.layers[stage.first : stage.last + 1]]
    return names[0] if len(names) == 1 else f"{names[0]}..{names[-1]} ({len(names)})"


def outline(problem: Problem, plan: Plan) -> str:
    """A plan in one line."""
    return " | ".join(
        f"{stage.units} {stage.type}: {layers(problem, stage)}" for stage in plan.stages
    )


def brief_outline(plan: Plan) -> str:
    """The same without names: units and, in parentheses, layers."""
    stages = plan.stages
    return " | ".join(f"{s.units} {s.type} ({s.last - s.first + 1})" for s in stages)


def print_explanation(problem: Problem, explanation: Explanation) -> None:
    print()
    print_heading("Why")
    print(f"  {_binding(explanation)}")
    if explanation.reference.cost < explanation.plan.cost * (1 - EQUAL):
        saved = explanation.plan.cost - explanation.reference.cost
        print(f"  {_saving(saved, explanation.plan.cost)} with the plan of --method auto")
    for line in _changes(explanation):
        print(f"  {line}")
    print()
    _print_alternatives(problem, explanation.alternatives)


def _binding(explanation: Explanation) -> str:
    binding = explanation.binding
    if binding is None:
        return "no stage takes any time, so nothing binds"
    stage = binding.stage
    other = min(stage.compute_s, stage.comm_s)
    rest = "compute" if binding.by == "communication" else "communication"
    return (
        f"stage {binding.index} on {stage.type} sets the pace, bound by {binding.by}: "
        f"{duration(stage.period_s)} a batch ({rest} {duration(other)})"
    )


def _changes(explanation: Explanation) -> Iterator[str]:
    """What one more unit, or a lower floor, would do; types without effect share a line."""
    reference = explanation.reference
    by_effect: dict[str, list[str]] = {}
    for change in explanation.more_units:
        effect = _effect(change, reference)
        by_effect.setdefault(effect, []).append(f"{change.type} (limit {change.value:,.0f})")
    for effect, types in by_effect.items():
        yield f"one more {' or '.join(types)}: {effect}"
    if explanation.lower_floor is not None:
        floor = rate(explanation.lower_floor.value)
        effect = _effect(explanation.lower_floor, reference)
        yield f"10 % less throughput (floor {floor}): {effect}"


def _effect(change: Change, reference: Plan) -> str:
    if change.saving <= EQUAL * reference.cost:
        return "no change" if change.proven else "no change found"
    least = "" if change.proven else " at least"
    return f"{_saving(change.saving, reference.cost)}{least}"


def _saving(saving: float, cost: float) -> str:
    return f"{money(saving)} less ({percent(saving / cost)})"


def _print_alternatives(problem: Problem, alternatives: tuple[Alternative, ...]) -> None:
    if not alternatives:
        print_heading("There is no other plan, or none was found")
        return
    all_proven = all(other.proven for other in alternatives)
    print_heading("Next best" if all_proven else "Next best (found, not proven to be the next)")
    rows = [
        (
            _signed(other.extra),
            "" if other.extra_share is None else f"{100 * other.extra_share:+.3g} %",
            outline(problem, other.plan),
        )
        for other in alternatives
    ]
    print_table(Table(("cost", "share", "plan"), rows, left=("plan",)))


def _signed(dollars: float) -> str:
    return f"{'-' if dollars < 0 else '+'}{money(abs(dollars))}"


def print_frontier(problem: Problem, frontier: Frontier) -> None:
    print()
    print_heading("The cheapest plan at each speed")
    titles = ("samples/s", "cost", "$/million", "hours", "floor", "units (layers)")
    floor = problem.workload.min_throughput * (1 - 1e-9)
    rows = [
        (
            rate(plan.throughput),
            money(plan.cost),
            money(plan.breakdown.dollars_per_million_samples),
            f"{plan.breakdown.hours:.4g}",
            "met" if plan.throughput is None or plan.throughput >= floor else "missed",
            brief_outline(plan),
        )
        for plan in frontier.plans
    ]
    print_table(Table(titles, rows, left=("floor", "units (layers)")))
    if frontier.complete and frontier.plans[-1].throughput is not None:
        print("No plan within the limits is faster than the last by more than 0.1 %.")


def print_comparison(comparison: Comparison) -> None:
    titles = ["method", "cost", "ratio", "samples/s", "evaluations", "seconds"]
    rows = []
    for entry in comparison.entries:
        if entry.plan is None:
            rows.append([entry.method, "-", "-", "-", "-", "-", entry.note])
            continue
        ratio = comparison.ratio(entry)
        rows.append(
            [
                entry.method,
                money(entry.plan.cost),
                "-" if ratio is None else f"{ratio:.4f}",
                rate(entry.plan.throughput),
                f"{entry.plan.evaluations:,}",
                f"{entry.plan.planning_s or 0:.3f}",
                entry.note,
            ]
        )
    if any(row[-1] for row in rows):
        titles.append("note")
    else:
        rows = [row[:-1] for row in rows]
    print_table(Table(titles, rows, left=("method", "note")))
    print()
    print(_reference(comparison))


def _reference(comparison: Comparison) -> str:
    if comparison.lower_bound is None:
        return "ratio: to the cheapest plan; nothing is proven about cheaper ones"
    what = "optimum" if comparison.proven else "lower bound"
    return f"ratio: to the proven {what} of {money(comparison.lower_bound)}"
