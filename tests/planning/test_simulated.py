import pytest

from heterps.errors import InfeasibleError
from heterps.planning.problem import Problem
from heterps.planning.schedulers import make_scheduler
from heterps.planning.simulate import simulate
from heterps.planning.simulated import cheapest_simulated

BATCH = 12


def layer(name, **compute_s):
    on = {
        kind: {"compute_s": seconds, "comm_s": 0.0, "alpha": 1.0, "beta": 1.0, "transfer_s": 0.0}
        for kind, seconds in compute_s.items()
    }
    shape = {"kind": "dense", "input_bytes": 1, "weight_bytes": 1}
    return {"name": name, **shape, "on": on}


def problem(floor, staleness=0, limit=8, **compute_s):
    """Two layers, each cheap on one of two types; stages at staleness 0 wait for each other."""
    types = [{"name": n, "price_per_hour": 1.0, "limit": limit} for n in ("one", "two")]
    layers = [layer("a", one=1.0, two=1.3), layer("b", one=1.3, two=1.0)]
    workload = {
        "batch_size": BATCH,
        "micro_batches": 4,
        "staleness": staleness,
        "epochs": 1,
        "samples_per_epoch": 1000,
        "min_throughput": floor,
    }
    return Problem.parse(
        {
            "cluster": {"types": types},
            "profile": {"batch_size": BATCH, "layers": layers},
            "workload": workload,
        }
    )


def both(given):
    plan = make_scheduler("exact").plan(given)
    return plan, cheapest_simulated(given, plan)


def dollars(given, plan):
    return plan.cost * plan.throughput / simulate(given, plan).samples_per_s


def test_it_keeps_the_floor_in_the_simulator_where_the_cheapest_by_the_formula_does_not():
    given = problem(floor=BATCH * 1.0)
    plan, found = both(given)
    assert simulate(given, plan).samples_per_s < given.workload.min_throughput
    assert found.kept
    assert simulate(given, found.plan).samples_per_s >= 0.999 * given.workload.min_throughput
    assert found.plan.lower_bound is None, "nothing is proven"
    assert found.plan.evaluations > 1


def test_it_is_cheaper_in_the_simulator_than_the_cheapest_by_the_formula():
    """Two stages that wait for each other at staleness 0; one type has no one to wait for."""
    given = problem(floor=0.0)
    plan, found = both(given)
    assert len(plan.stages) == 2
    assert found.cost < 0.95 * dollars(given, plan)
    assert found.cost == pytest.approx(dollars(given, found.plan))


def test_stages_wider_than_a_batch_are_made_narrower():
    given = problem(floor=BATCH * 3.0, limit=12)
    plan = make_scheduler("exact").plan(given)
    assert max(plan.units) > 2
    few = given.workload.model_copy(update={"micro_batches": 2, "min_throughput": 0.0})
    found = cheapest_simulated(Problem(given.cluster, given.profile, few), plan)
    assert max(found.plan.units) <= 2


def test_a_search_that_is_stopped_has_looked_at_the_first_plan():
    given = problem(floor=0.0)
    plan = make_scheduler("exact").plan(given)
    assert cheapest_simulated(given, plan, stop=lambda: True).plan.units == plan.units


def test_limits_are_kept():
    given = problem(floor=BATCH * 1.0, limit=3)
    _, found = both(given)
    assert all(units <= 3 for units in found.plan.units_by_type().values())


def test_a_floor_that_no_simulated_plan_reaches_is_said():
    given = problem(floor=BATCH * 0.999, limit=1)
    plan = make_scheduler("exact").plan(given)
    with pytest.raises(InfeasibleError, match="by the simulator no plan"):
        cheapest_simulated(given, plan)
