import pytest

from heterps.errors import InfeasibleError, InputError
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
    layers = [layer("a", one=1.0, two=1.6), layer("b", one=1.6, two=1.0)]
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
    return plan.cost * plan.throughput / simulate(given, plan, batches=12).samples_per_s


def test_it_is_cheaper_in_the_simulator_and_keeps_the_floor_there():
    given = problem(floor=BATCH * 1.0)
    plan, found = both(given)
    reached = simulate(given, plan).samples_per_s
    assert reached < given.workload.min_throughput, "stages wait for each other"
    assert found.kept
    assert simulate(given, found.plan).samples_per_s >= 0.999 * given.workload.min_throughput


def test_without_a_floor_it_costs_no_more_than_the_plan_that_it_began_with():
    given = problem(floor=0.0)
    plan, found = both(given)
    assert found.cost <= dollars(given, plan) * (1 + 1e-9)
    assert found.cost == pytest.approx(dollars(given, found.plan))


def test_limits_are_kept():
    given = problem(floor=BATCH * 1.0, limit=3)
    _, found = both(given)
    assert all(units <= 3 for units in found.plan.units_by_type().values())


def test_a_floor_that_no_simulated_plan_reaches_is_said():
    given = problem(floor=BATCH * 0.999, limit=1)
    plan = make_scheduler("exact").plan(given)
    with pytest.raises(InfeasibleError, match="by the simulator no plan"):
        cheapest_simulated(given, plan)


def test_a_batch_that_is_cut_into_too_few_pieces_is_refused():
    given = problem(floor=BATCH * 3.0)
    plan = make_scheduler("exact").plan(given)
    whole = given.workload.model_copy(update={"micro_batches": 1})
    with pytest.raises(InputError, match=r"workload\.micro_batches"):
        cheapest_simulated(Problem(given.cluster, given.profile, whole), plan)
