"""Whether a plan pays, and which fits: without processes, files or a clock."""

from dataclasses import replace

import pytest

from heterps.errors import InfeasibleError, InputError
from heterps.job.spec import Job
from heterps.planning.problem import Problem
from heterps.planning.schedulers import make_scheduler
from heterps.runtime.layout import StageLayout
from heterps.runtime.scaling import (
    Estimate,
    are_lost,
    first_plan,
    fitted,
    plan_again,
    used_units,
    with_limits,
)
from heterps.testing.problems import random_problem

# An hour left at 3.6 dollars; twice as fast for the double price saves half an hour, no dollar.
TWICE = Estimate(3600.0, 1.0, 3.6, 2.0, 7.2, 100.0)


def test_what_another_plan_saves():
    assert TWICE.saved_s == 3600 - 1800 - 100
    assert TWICE.saved_dollars == pytest.approx(3.6 - 1900 * 0.002)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "saves 1,700 s and costs $0.20000 more"),
        ({"new_dollars_per_hour": 3.6}, "saves 1,700 s and $1.70000"),
        ({"restart_s": 2000.0}, "takes 200 s and $4.00000 more"),
        ({"restart_s": 2000.0, "new_dollars_per_hour": 1.8}, "takes 200 s more and saves $1.70000"),
    ],
)
def test_what_is_not_saved_is_said_so(changes, said):
    found = replace(TWICE, **changes)
    start = "2 samples/s instead of 1, "
    assert found.text == f"{start}{said}, a restart of {found.restart_s:.0f} s included"


def test_a_run_that_keeps_its_floor_changes_for_less_money_alone():
    assert not TWICE.pays
    assert replace(TWICE, new_dollars_per_hour=3.6).pays
    assert not replace(TWICE, new_dollars_per_hour=3.6, restart_s=1900.0).pays
    assert replace(TWICE, new_samples_per_s=0.5, new_dollars_per_hour=1.0).pays


def test_a_run_below_its_floor_changes_for_time():
    late = replace(TWICE, floor=1.5)
    assert late.pays
    assert not replace(late, samples_left=150.0).pays, "it would have ended before"


def test_less_money_is_no_reason_to_leave_the_floor():
    cheap = replace(TWICE, new_samples_per_s=0.5, new_dollars_per_hour=1.0, floor=0.9)
    assert not cheap.pays


def job_of(units, limit, servers=None):
    stages = [StageLayout(n, n, "cpu", count) for n, count in enumerate(units)]
    document = {
        "workload": {"batch_size": 8, "epochs": 1, "samples_per_epoch": 100},
        "cluster": {"types": [{"name": "cpu", "price_per_hour": 1.0, "limit": limit}]},
        "servers": {"count": 2, "type": servers} if servers else {},
    }
    return Job.parse(document), stages


def test_servers_use_units_too():
    assert used_units(*job_of((3, 1), 9)) == {"cpu": 4}
    assert used_units(*job_of((3, 1), 9, "cpu")) == {"cpu": 6}


def test_units_are_lost_when_the_limit_is_below_those_in_use():
    assert are_lost({"cpu": 4}, {"cpu": 3})
    assert not are_lost({"cpu": 4}, {"cpu": 4, "gpu": 0})


@pytest.mark.parametrize(
    ("units", "limit", "servers", "expected"),
    [
        ((3, 1), 9, None, [3, 1]),
        ((3, 1), 3, None, [2, 1]),
        ((4, 3), 4, None, [2, 2]),
        ((4, 3), 4, "cpu", [1, 1]),
    ],
)
def test_without_a_profile_the_widest_stages_give_up_units(units, limit, servers, expected):
    document = fitted(*job_of(units, limit, servers))
    assert [stage["units"] for stage in document["stages"]] == expected


def test_a_stage_without_a_unit_is_no_plan():
    with pytest.raises(InputError, match=r"limit: 1 units of 'cpu' are too few for 2 stages"):
        fitted(*job_of((2, 1), 1))


def profiled(floor):
    document = random_problem(5, layers=(6, 6), types=(2, 2)).as_document()
    document["workload"] |= {"min_throughput": floor}
    return Job.parse(document)


def test_with_a_profile_the_run_is_planned_anew_within_the_limits():
    job = profiled(0.0)
    name = job.cluster.names[0]
    plan = plan_again(with_limits(job, {name: 0}))
    assert name not in plan.assignment


def test_where_the_floor_is_out_of_reach_the_fastest_plan_is_taken():
    job = profiled(1e12)
    with pytest.raises(InfeasibleError) as caught:
        make_scheduler("auto").plan(Problem.of(job))
    plan = plan_again(job)
    assert plan.throughput >= 0.99 * caught.value.max_throughput


def with_work(job, **changes):
    return job.model_copy(update={"workload": job.workload.model_copy(update=changes)})


def widths(plan):
    return {stage.units for stage in plan.stages}


def test_a_run_is_planned_with_no_more_replicas_than_micro_batches():
    job = with_work(profiled(0.0), overhead_per_hour=1000.0)  # so that it pays to be quick
    free = make_scheduler("auto").plan(Problem.of(job))
    assert max(widths(free)) > 2
    assert widths(first_plan(job)) == {1}
    two = with_work(job, batch_size=2 * job.workload.batch_size, micro_batches=2)
    assert widths(first_plan(two)) == {2}
    assert widths(first_plan(with_work(job, staleness=1))) == widths(free)


def test_where_so_few_replicas_are_too_slow_it_is_said_how_many_would_do():
    job = profiled(0.0)
    most = plan_again(profiled(1e12))
    job = with_work(job, min_throughput=0.9 * most.throughput)
    with pytest.raises(InfeasibleError, match=r"at most workload.micro_batches \(1\) replicas"):
        first_plan(job)
