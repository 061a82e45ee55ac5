import pytest

from heterps.errors import InputError
from heterps.planning.plan import make_plan
from heterps.planning.problem import Problem
from heterps.runtime.measuring import Measurer, measure_plans
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import SMALL, TYPE, document, small_job

ON = {"compute_s": 0.01, "comm_s": 0.001, "alpha": 1.0, "beta": 1.0, "transfer_s": 0.001}
SLOW = {"name": TYPE, "price_per_hour": 0.04, "limit": 2, "slowdown": 8.0}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Two units of one emulated type; its profile is far from right."""
    folder = tmp_path_factory.mktemp("data")
    layers = [
        {"name": f"l{at}", "kind": "fc", "input_bytes": 8, "weight_bytes": 8, "on": {TYPE: ON}}
        for at in range(SMALL["two_emb"].layers)
    ]
    profile = {"batch_size": 8, "layers": layers}
    work = document(folder, "two_emb")["workload"] | {"samples_per_epoch": 800}
    changes = {"cluster__types": [SLOW], "profile": profile, "workload": work}
    return small_job(folder, "two_emb", (1,), **changes)


@pytest.mark.slow
def test_plans_are_run_and_the_best_of_them_is_known(job):
    heard = []
    found = measure_plans(
        job, Problem.of(job), 2, 0.5,
        told=lambda number, plan, entry: heard.append((number, entry)), make_engine=ForkEngine,
    )  # fmt: skip
    assert found.best in found.rounds
    assert all(entry.samples_per_s > 0 and entry.kept for entry in found.rounds)
    assert heard[0] == (0, None)
    assert heard[1][1].runs == found.rounds[0].runs[:1]
    runs = [len(entry.runs) for entry in found.rounds]
    # Those that are close after a run each run twice more, and may be far from each other then.
    assert runs in ([3, 3], [1] * len(runs))


@pytest.mark.slow
def test_a_run_that_is_stopped_tells_nothing_and_leaves_nothing(job):
    plan = make_plan(Problem.of(job), "given", [TYPE] * SMALL["two_emb"].layers, (1,))
    assert Measurer(job, 60.0, ForkEngine).run(plan, stop=lambda: True) is None


def test_types_that_are_not_there_are_refused_before_anything_is_run(job):
    cluster = {"types": [{"name": "gpu", "device": "cuda", "price_per_hour": 1, "limit": 1}]}
    other = job.model_copy(update={"cluster": type(job.cluster).parse(cluster, "cluster")})
    with pytest.raises(InputError, match=r"cluster\.types\.gpu\.device: this machine has no cuda"):
        Measurer(other, 1.0, ForkEngine)
    with pytest.raises(InputError, match="data: is missing: a plan can be measured only"):
        Measurer(job.model_copy(update={"data": None}), 1.0, ForkEngine)
