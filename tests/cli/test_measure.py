import json
from pathlib import Path

import pytest

from heterps.planning.measured import CAUSES, MeasuredStage
from heterps.runtime.measuring import Measurement, Measurer
from heterps.testing.runs import SMALL, TYPE, document

ON = {"compute_s": 0.01, "comm_s": 0.001, "alpha": 1.0, "beta": 1.0, "transfer_s": 0.001}
NOTHING = dict.fromkeys(
    ("backward_s", "prepare_s", "send_s", "commit_s", "pull_s", "push_s", "link_s"), 0.0
)


@pytest.fixture
def job(tmp_path, write):
    own = document(tmp_path, "two_emb")
    del own["plan"]
    layers = [
        {"name": f"l{at}", "kind": "fc", "input_bytes": 8, "weight_bytes": 8, "on": {TYPE: ON}}
        for at in range(SMALL["two_emb"].layers)
    ]
    own["cluster"]["types"][0]["limit"] = 2
    own["profile"] = {"batch_size": 8, "layers": layers}
    return write(own, "job.json")


@pytest.fixture
def runs(monkeypatch):
    """Every plan takes twice as long as its cost model says."""
    plans = []

    def run(self, plan, stop):
        plans.append(plan)
        waits = dict.fromkeys(CAUSES, 0.0)
        stages = [
            MeasuredStage(9, 2 * s.period_s, 2 * s.compute_s, **NOTHING, waiting=waits)
            for s in plan.stages
        ]
        return Measurement(plan.throughput / 2, tuple(stages), 1.0)

    monkeypatch.setattr(Measurer, "run", run)
    return plans


@pytest.mark.slow
def test_rounds_are_told_and_the_best_plan_is_written(heterps, job, runs, tmp_path):
    out = tmp_path / "plan.json"
    lines = heterps("plan", job, "--measure", "1", "--out", str(out)).out.splitlines()
    assert lines[2].startswith("round 1/1  ")
    assert "predicted $" in lines[3]
    assert "measured $" in lines[3]
    assert lines[-1] == "verdict   the cost model's choice stands after 1 round"
    assert json.loads(out.read_text())["assignment"] == list(runs[0].assignment)


@pytest.mark.slow
def test_json_holds_the_rounds(heterps, job, runs):
    (found,) = heterps("plan", job, "--measure", "2", "--json").lines
    assert sum(len(entry["runs"]) for entry in found["rounds"]) == len(runs) >= 1
    assert found["measured"]["cost"] == min(entry["cost"] for entry in found["rounds"])
    assert found["rounds"][0]["predicted_cost"] * 2 == pytest.approx(found["rounds"][0]["cost"])


@pytest.mark.parametrize(
    "other", ["--compare", "--frontier", "--explain", "--method=greedy", "--time-budget=1"]
)
def test_measuring_goes_with_few_other_options(heterps, job, other):
    result = heterps("plan", job, "--measure", "1", other)
    assert result.code == 2
    assert "goes with one job" in " ".join(result.err.split())


def test_types_that_are_not_there_are_told_in_one_line(heterps, job, write):
    own = json.loads(Path(job).read_text())
    own["cluster"]["types"][0]["device"] = "cuda"
    result = heterps("plan", write(own, "gpu.json"), "--measure", "1", "--json")
    assert (result.code, result.out) == (1, "")
    assert f"cluster.types.{TYPE}.device: this machine has no cuda device" in result.err
    assert len(result.err.splitlines()) == 1
