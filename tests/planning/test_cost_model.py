import pytest

from heterps.planning.cost_model import Stage, amdahl, evaluate, stage_times, stages_of
from heterps.planning.problem import Problem

# compute_s, comm_s, alpha, beta, transfer_s
EMBEDDING_ON_CPU = (0.01, 0.04, 1.0, 0.95, 0.001)
DENSE_ON_CPU = (0.5, 0.001, 0.99, 0.9, 0.004)
DENSE_ON_GPU = (0.01, 0.001, 0.9, 0.5, 0.002)


def figures(compute_s, comm_s, alpha, beta, transfer_s, **more):
    return {
        "compute_s": compute_s,
        "comm_s": comm_s,
        "alpha": alpha,
        "beta": beta,
        "transfer_s": transfer_s,
    } | more


def layer(name, on, send=None, kind="fc", weight_bytes=0):
    entry = {
        "name": name,
        "kind": kind,
        "input_bytes": 4,
        "weight_bytes": weight_bytes,
        "on": on,
    }
    return entry | ({"send": send} if send is not None else {})


def problem(layers, workload=None):
    return Problem.parse(
        {
            "cluster": {
                "types": [
                    {"name": "cpu", "price_per_hour": 0.04, "limit": 64},
                    {"name": "gpu", "price_per_hour": 2.0, "limit": 4},
                ]
            },
            "profile": {"model": "tiny", "batch_size": 100, "layers": layers},
            "workload": {"batch_size": 200, "samples_per_epoch": 36e6, "epochs": 1}
            | (workload or {}),
        }
    )


@pytest.fixture
def worked_example():
    """The one of docs/planning.md."""
    return problem(
        [
            layer("embedding", {"cpu": figures(*EMBEDDING_ON_CPU)}, kind="embedding"),
            layer(
                "dense",
                {"cpu": figures(*DENSE_ON_CPU), "gpu": figures(*DENSE_ON_GPU, sync_s=0.001)},
            ),
        ]
    )


def test_amdahl_divides_only_the_parallel_share():
    assert amdahl(8.0, 0.75, 3) == pytest.approx(2.0 + 2.0)
    assert amdahl(8.0, 0.0, 100) == 8.0
    assert amdahl(8.0, 1.0, 4) == 2.0


def test_stages_are_maximal_runs_and_a_type_may_have_several():
    assert stages_of(["a", "a", "b", "a"]) == (
        Stage(0, 1, "a"),
        Stage(2, 2, "b"),
        Stage(3, 3, "a"),
    )


def test_first_stage_pays_for_handing_on_but_not_for_input(worked_example):
    compute, comm = stage_times(worked_example, Stage(0, 0, "cpu"), 14)
    assert compute == pytest.approx(2 * 0.01 / 14)
    # 2 · (0.04 · (0.05 + 0.95/14) + 0.004 · (0.1 + 0.9/14)); the transfer is that of layer 1 on cpu
    assert comm == pytest.approx(0.010742857142857143)


def test_last_stage_pays_for_input_and_sync_once_per_batch(worked_example):
    compute, comm = stage_times(worked_example, Stage(1, 1, "gpu"), 2)
    assert compute == pytest.approx(2 * 0.01 * 0.55)
    assert comm == pytest.approx(2 * (0.001 * 0.75 + 0.002 * 0.75) + 0.001)


def test_a_stage_of_the_whole_chain_has_no_borders(worked_example):
    compute, comm = stage_times(worked_example, Stage(0, 1, "cpu"), 10)
    assert compute == pytest.approx(2 * (0.01 * 0.1 + 0.5 * (0.01 + 0.099)))
    assert comm == pytest.approx(2 * (0.04 * (0.05 + 0.095) + 0.001 * (0.1 + 0.09)))


def test_a_middle_stage_pays_for_both_borders():
    on = {"cpu": figures(0, 1, 1, 1, 0.5), "gpu": figures(0, 1, 1, 0.5, 0.25)}
    three = problem([layer(name, on) for name in "xyz"])
    _, comm = stage_times(three, Stage(1, 1, "gpu"), 2)
    # r · (1 + 0.25 + 0.25) · (0.5 + 0.5/2)
    assert comm == pytest.approx(2 * 1.5 * 0.75)


def test_a_stage_sends_at_the_send_figures_of_a_layer_it_cannot_run():
    first = layer("x", {"cpu": figures(0, 0, 1, 1, 0), "gpu": figures(0, 0, 1, 1, 0)})
    second = layer("y", {"gpu": figures(0, 0, 1, 1, 0.3)}, {"cpu": {"transfer_s": 3, "beta": 0.5}})
    _, comm = stage_times(problem([first, second]), Stage(0, 0, "cpu"), 3)
    assert comm == pytest.approx(2 * 3 * (0.5 + 0.5 / 3))


def test_sending_is_free_where_neither_on_nor_send_has_the_type():
    first = layer("x", {"cpu": figures(0, 0, 1, 1, 0)})
    second = layer("y", {"gpu": figures(0, 0, 1, 1, 0.3)})
    assert stage_times(problem([first, second]), Stage(0, 0, "cpu"), 3) == (0.0, 0.0)


def test_on_counts_where_a_type_stands_in_send_as_well():
    first = layer("x", {"cpu": figures(0, 0, 1, 1, 0), "gpu": figures(0, 0, 1, 1, 0)})
    both = {"cpu": figures(0, 0, 1, 1, 0.1), "gpu": figures(0, 0, 1, 1, 0)}
    second = layer("y", both, {"cpu": {"transfer_s": 3, "beta": 0.5}})
    _, comm = stage_times(problem([first, second]), Stage(0, 0, "cpu"), 2)
    assert comm == pytest.approx(2 * 0.1 / 2)


def test_a_plan_costs_its_units_for_as_long_as_the_slowest_stage_takes(worked_example):
    cost = evaluate(worked_example, ["cpu", "gpu"], [14, 2])
    assert cost.throughput == pytest.approx(200 / 0.011)
    assert cost.seconds == pytest.approx(1980)
    assert cost.hours == pytest.approx(0.55)
    assert cost.dollars == pytest.approx(2.508)
    assert cost.dollars_per_million_samples == pytest.approx(2.508 / 36)
    assert [stage.dollars for stage in cost.stages] == pytest.approx([0.308, 2.2])
    assert [stage.bound_by for stage in cost.stages] == ["communication", "compute"]
    assert [stage.throughput for stage in cost.stages] == pytest.approx([18617.02, 18181.82])


def test_overhead_is_charged_for_the_whole_run(worked_example):
    document = worked_example.as_document()
    document["workload"] |= {"overhead_per_hour": 10, "epochs": 2}
    cost = evaluate(Problem.parse(document), ["cpu", "gpu"], [14, 2])
    assert cost.overhead_dollars == pytest.approx(11.0)
    assert cost.dollars == pytest.approx(2 * 2.508 + 11.0)


def test_a_plan_that_takes_no_time_has_no_throughput_and_costs_nothing():
    free = problem([layer("x", {"cpu": figures(0, 0, 1, 1, 1)})])
    cost = evaluate(free, ["cpu"], [3])
    assert (cost.throughput, cost.seconds, cost.dollars) == (None, 0.0, 0.0)


def test_nothing_to_train_costs_nothing(worked_example):
    document = worked_example.as_document()
    document["workload"]["samples_per_epoch"] = 0
    cost = evaluate(Problem.parse(document), ["cpu", "gpu"], [14, 2])
    assert (cost.seconds, cost.dollars, cost.dollars_per_million_samples) == (0.0, 0.0, 0.0)
    assert cost.throughput == pytest.approx(200 / 0.011)
