"""The plans of benchmarks/prediction.py are such that a prediction can be judged by them."""

import importlib.util
import sys
from pathlib import Path

import pytest

from heterps.job.resources import Cluster
from heterps.runtime.emulation import Demand

FILE = Path(__file__).parents[1] / "benchmarks" / "prediction_plans.py"


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as changed:
        changed.syspath_prepend(str(FILE.parent))
        spec = importlib.util.spec_from_file_location("prediction_benchmark", FILE)
        module = importlib.util.module_from_spec(spec)
        changed.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def test_plans_differ_and_leave_two_cores_room(benchmark):
    types = {entry.name: entry for entry in Cluster.parse({"types": benchmark.TYPES}).types}
    plans = [stages for each in benchmark.PLANS.values() for stages in each]
    assert len(plans) >= 10
    assert {len(stages) for stages in plans} == {1, 2, 3}
    for stages in plans:
        units = [(types[name], count) for _, name, count in stages]
        assert not Demand.of(units, servers=1, cores=2).oversubscribed
        assert {"slow", "far"} >= {name for _, name, _ in stages}


def test_micro_batches_and_lanes_are_shared_out_evenly(benchmark):
    lanes = max(entry["limit"] for entry in benchmark.TYPES)
    for stages in (stages for each in benchmark.PLANS.values() for stages in each):
        for _, _, units in stages:
            assert benchmark.MICRO_BATCHES % units == 0
            assert lanes % units == 0
