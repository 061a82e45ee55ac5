from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from heterps.planning.correction import Correction, Factors, Seen
from heterps.planning.measured import CAUSES, MeasuredStage
from heterps.planning.plan import make_plan
from heterps.planning.problem import Problem


def figures(seconds):
    return {"compute_s": seconds, "comm_s": 0.1, "alpha": 0.9, "beta": 0.9, "transfer_s": 0.05}


def problem(**changed):
    """Four layers on two types; ``changed`` gives compute by layer and type."""
    layers = [
        {
            "name": f"l{at}", "kind": "fc", "input_bytes": 8, "weight_bytes": 8,
            "on": {name: figures(changed.get(f"l{at}_{name}", 1.0)) for name in ("a", "b")},
        }
        for at in range(4)
    ]  # fmt: skip
    types = [{"name": name, "price_per_hour": 1.0, "limit": 4} for name in ("a", "b")]
    return Problem.parse(
        {
            "cluster": {"types": types},
            "profile": {"batch_size": 8, "layers": layers},
            "workload": {"batch_size": 16, "epochs": 1, "samples_per_epoch": 100},
        }
    )


def measured(plan):
    """As if the cost model of the plan were the truth."""
    nothing = dict.fromkeys(("forward_s", "backward_s", "prepare_s", "send_s", "commit_s"), 0.0)
    waits = dict.fromkeys(CAUSES, 0.0)
    return [
        MeasuredStage(
            9, 1.0, **{**nothing, "forward_s": s.compute_s},
            pull_s=s.comm_s, push_s=0.0, link_s=0.0, waiting=waits,
        )
        for s in plan.stages
    ]  # fmt: skip


def test_what_was_right_stays_as_it_is():
    said = problem()
    plan = make_plan(said, "given", "aabb", (2, 1))
    correction = Correction(said)
    correction.learn(plan.stages, measured(plan))
    assert np.allclose(correction.compute.values, 1.0)
    assert np.allclose(correction.comm.values, 1.0)
    assert correction.problem().profile == said.profile


def test_what_a_cut_costs_is_not_taken_for_the_layers_fault():
    document = problem().as_document()
    document["profile"]["types"] = {"a": {"source": "measured", "first_stage_s": 0.5}}
    said = Problem.parse(document)
    plan = make_plan(said, "given", "aabb", (2, 1))
    first, last = measured(plan)
    beside_s = 0.5 * said.workload.micro_batches / 2  # of each of the two units
    correction = Correction(said)
    correction.learn(plan.stages, [replace(first, forward_s=first.forward_s + beside_s), last])
    assert np.allclose(correction.compute.values, 1.0)


def test_what_units_beside_cost_is_not_taken_for_the_layers_fault():
    document = problem().as_document()
    document["profile"]["types"] = {"a": {"source": "measured", "crowding": 0.2}}
    said = Problem.parse(document)
    plan = make_plan(said, "given", "aabb", (2, 3))
    first, last = measured(plan)
    compute_s = sum(layer.on["a"].compute_s for layer in said.profile.layers[:2])
    crowd_s = 2 * compute_s * 3 * 0.2 / 2  # two profile batches, three others, two of its own
    correction = Correction(said)
    correction.learn(plan.stages, [replace(first, forward_s=first.forward_s + crowd_s), last])
    assert np.allclose(correction.compute.values, 1.0)


def test_a_plan_that_was_run_is_then_predicted_as_it_was_measured():
    said, true = problem(), problem(l1_a=5.0)
    plan, seen = (make_plan(p, "given", "aabb", (2, 1)) for p in (said, true))
    correction = Correction(said)
    correction.learn(plan.stages, measured(seen))
    now = make_plan(correction.problem(), "given", "aabb", (2, 1))
    for one, other in zip(now.stages, seen.stages, strict=True):
        assert one.compute_s == pytest.approx(other.compute_s, rel=0.02)


def test_runs_that_cut_elsewhere_tell_the_layers_apart():
    said, true = problem(), problem(l1_a=5.0)
    correction = Correction(said)
    for assignment in ("aabb", "abbb", "baab", "aaab"):
        units = (1,) * (1 + sum(x != y for x, y in pairwise(assignment)))
        plan, seen = (make_plan(p, "given", assignment, units) for p in (said, true))
        correction.learn(plan.stages, measured(seen))
    found = correction.compute.values[:, 0]
    assert found[1] == pytest.approx(5.0, rel=0.15)
    assert found[[0, 2]] == pytest.approx([1.0, 1.0], rel=0.3)


def test_what_is_off_everywhere_is_believed_of_what_was_not_run():
    factors = Factors(3, 2)
    factors.learn([Seen(((0, 0), (1, 0)), (1.0, 1.0), 20.0)])
    assert factors.values[0, 0] == pytest.approx(10.0, rel=0.1)
    assert 2.0 < factors.values[2, 1] < factors.values[2, 0] < factors.values[0, 0]


def test_a_time_of_nothing_teaches_nothing():
    factors = Factors(2, 1)
    factors.learn([Seen(((0, 0),), (0.0,), 1.0), Seen(((1, 0),), (1.0,), 0.0)])
    assert np.array_equal(factors.values, np.ones((2, 1)))
