"""What every scheduler has to keep, as checks that any of them can be put through.

A check takes a function that makes the scheduler from a seed, and raises AssertionError. In pytest:

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_scheduler_conforms(check):
        check(lambda seed: MyScheduler(seed=seed))

A scheduler may give up on a feasible problem with NoPlanFoundError, but not on a plain one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from heterps.errors import InfeasibleError, NoPlanFoundError
from heterps.planning import reference
from heterps.planning.cost_model import evaluate
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.schedulers.base import Progress, Scheduler
from heterps.testing.tiny import edge_problems, infeasible_problems, plain_problem, tiny_problem

Make = Callable[[int], Scheduler]

_FEASIBLE = 12
_EACH_REASON = 2
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Solved:
    """A problem with its right answer."""

    name: str
    problem: Problem
    answer: reference.Answer


def check_plans_are_valid_and_not_too_good(make: Make) -> None:
    """Limits, memory and floor are kept, also where they bind; the figures are those of the plan;
    neither the cost nor what is claimed as its bound is better than can be."""
    for case in solved_problems():
        plan = _plan(make(1), case)
        if plan is not None:
            assert_valid(case.problem, plan)
            assert_not_below(plan, case)


def check_finds_a_plan_of_a_plain_problem(make: Make) -> None:
    plan = make(0).plan(plain_problem())
    assert_valid(plain_problem(), plan)
    assert plan.evaluations > 0
    assert plan.planning_s is None, "the clock is the caller's"


def check_gives_the_right_reason_where_no_plan_exists(make: Make) -> None:
    for case in unsolvable_problems():
        error = _refusal(make(0), case)
        assert error.reason == case.answer.reason, case.name
        if error.reason == "throughput":
            reached = case.problem.workload.batch_size / case.answer.period_s
            assert error.max_throughput is not None, case.name
            assert _close(error.max_throughput, reached), case.name


def check_repeats_itself_under_a_seed(make: Make) -> None:
    """With a new scheduler, and with one that has planned something else in between."""
    used = make(3)
    for case in solved_problems()[::3]:
        first, second, again = (_plan(one, case) for one in (make(3), make(3), used))
        assert first == second, f"{case.name}: two schedulers with one seed differ"
        assert first == again, f"{case.name}: the scheduler keeps state between plans"


def check_stops_when_asked(make: Make) -> None:
    """With the best plan so far, and with no bound that does not hold."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return True

    problem = plain_problem()
    plan = make(0).plan(problem, stop=stop)
    assert asked <= 5, f"went on after {asked} requests to stop"
    assert_valid(problem, plan)
    assert_not_below(plan, Solved("plain", problem, reference.cheapest_plan(problem)))


def check_reports_progress(make: Make) -> None:
    reports: list[Progress] = []
    plan = make(0).plan(plain_problem(), report=reports.append)
    done = [report.done for report in reports]
    assert done == sorted(done), "progress goes backwards"
    assert all(report.total is None or report.done <= report.total for report in reports)
    costs = [report.cost for report in reports if report.cost is not None]
    assert costs == sorted(costs, reverse=True), "the best plan so far gets worse"
    assert all(cost >= plan.cost * (1 - _TOLERANCE) for cost in costs)


CHECKS: tuple[Callable[[Make], None], ...] = (
    check_plans_are_valid_and_not_too_good,
    check_finds_a_plan_of_a_plain_problem,
    check_gives_the_right_reason_where_no_plan_exists,
    check_repeats_itself_under_a_seed,
    check_stops_when_asked,
    check_reports_progress,
)


def assert_valid(problem: Problem, plan: Plan) -> None:
    """The plan keeps every constraint and states the figures that it has, by the cost model and by
    the reference, which shares no code with it."""
    assert reference.faults(problem, plan.assignment, plan.units) == []
    assert plan.breakdown == evaluate(problem, plan.assignment, plan.units)
    assert _close(plan.cost, reference.plan_cost(problem, plan.assignment, plan.units))
    period = reference.plan_period(problem, plan.assignment, plan.units)
    if period == 0:
        assert plan.throughput is None
    else:
        assert plan.throughput is not None
        assert _close(plan.throughput, problem.workload.batch_size / period)


def assert_not_below(plan: Plan, case: Solved) -> None:
    """Neither cost nor bound is better than it can be, and a bound does not exceed the optimum."""
    least = case.answer.cost * (1 - _TOLERANCE)
    assert plan.cost >= least, f"{case.name}: {plan.cost} is less than {case.answer}"
    if plan.lower_bound is not None:
        assert plan.lower_bound <= plan.cost, case.name
        assert plan.lower_bound <= case.answer.cost * (1 + _TOLERANCE), f"{case.name}: not a bound"


@cache
def solved_problems() -> tuple[Solved, ...]:
    """The edges, and random tiny problems, with their optima."""
    edges = (Solved(name, p, reference.cheapest_plan(p)) for name, p in edge_problems().items())
    random = [case for case in _tiny() if case.answer.reason is None][:_FEASIBLE]
    return (*edges, *random)


@cache
def unsolvable_problems() -> tuple[Solved, ...]:
    """A plain one and random ones for each reason."""
    named = infeasible_problems().items()
    cases = [Solved(reason, p, reference.cheapest_plan(p)) for reason, p in named]
    count: Counter[str | None] = Counter({None: _EACH_REASON})
    for case in _tiny():
        count[case.answer.reason] += 1
        if count[case.answer.reason] <= _EACH_REASON:
            cases.append(case)
    return tuple(cases)


def _tiny() -> Iterator[Solved]:
    for seed in range(60):
        problem = tiny_problem(seed)
        yield Solved(f"tiny_problem({seed})", problem, reference.cheapest_plan(problem))


def _plan(scheduler: Scheduler, case: Solved) -> Plan | None:
    """None where the scheduler gives up, which it may."""
    try:
        return scheduler.plan(case.problem)
    except NoPlanFoundError:
        return None
    except InfeasibleError as error:
        raise AssertionError(f"{case.name}: {error}, but there is {case.answer}") from error


def _refusal(scheduler: Scheduler, case: Solved) -> InfeasibleError:
    try:
        plan = scheduler.plan(case.problem)
    except InfeasibleError as error:
        return error
    raise AssertionError(f"{case.name}: {plan} of an infeasible problem")


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_TOLERANCE)
