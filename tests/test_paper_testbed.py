"""The paper's testbed as jobs: four models on 480 cores and 32 V100."""

import importlib.util
import json
from pathlib import Path

import pytest

from heterps.api import load_problem, plan
from heterps.models.zoo import ZOO

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "examples" / "paper"


@pytest.mark.parametrize("model", ZOO)
def test_every_model_of_the_zoo_is_planned_for_the_papers_testbed(model):
    problem = load_problem(PAPER / f"{model}.yaml")
    limits = [(t.limit, t.price_per_hour) for t in problem.cluster.types]
    assert limits == [(480, 0.04), (32, 2.42)]
    found = plan(problem)
    assert found.throughput >= problem.workload.min_throughput
    assert found.gap == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("model", ZOO)
def test_the_profiles_are_what_the_catalogue_and_the_models_give(model):
    place = ROOT / "benchmarks" / "paper_testbed.py"
    spec = importlib.util.spec_from_file_location("paper_testbed", place)
    testbed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(testbed)
    held = json.loads((PAPER / f"{model}.profile.json").read_text())
    derived = testbed.profile(model, load_problem(PAPER / f"{model}.yaml").cluster)
    assert held["source"] == "roofline"
    for mine, other in zip(held["layers"], derived["layers"], strict=True):
        for name in ("cpu", "v100"):
            assert mine["on"][name] == pytest.approx(other["on"][name], rel=1e-6)
