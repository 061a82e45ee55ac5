import pytest

from heterps.errors import InputError
from heterps.planning.problem import Problem
from heterps.planning.profile import Profile
from heterps.runtime.profiling import measure_profile, refit_profile
from heterps.runtime.profiling.cache import measured_key
from heterps.runtime.profiling.layers import without_stages
from heterps.runtime.profiling.lines import (
    FIRST,
    LAST,
    MIDDLE,
    Line,
    Timed,
    even_cuts,
    in_turns,
    lines_of,
)
from heterps.runtime.profiling.profiler import unit_counts
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import TYPE, run, small_job

SLOW = {"name": TYPE, "price_per_hour": 0.01, "limit": 8, "slowdown": 8.0, "link_mbps": 50.0}
SLOWER = SLOW | {"name": "slower", "slowdown": 12.0}
PAPER = {"name": "v100", "catalog": "v100", "limit": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def job(data):
    return small_job(data, "ctrdnn", cluster__types=[SLOW, SLOWER, PAPER])


@pytest.fixture(scope="module")
def profile(job):
    """Measured in runs of two or three seconds."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("os.sched_getaffinity", lambda pid: range(8))
        return measure_profile(job, make_engine=ForkEngine, seconds=2.0)


@pytest.mark.slow
def test_a_profile_has_what_planning_needs_for_every_layer_and_type(job, profile):
    assert profile.batch_size == 8
    assert profile.types[TYPE].source == "measured"
    assert profile.types[TYPE].units == (1, 4)
    assert profile.types["v100"].source == "roofline"
    assert all(layer.on[TYPE].compute_s > 0 for layer in profile.layers)
    for name in (TYPE, "slower"):  # each was once the first of two stages, the last, in the middle
        about = profile.types[name]
        places = (about.first_stage_s, about.middle_stage_s, about.last_stage_s)
        assert None not in places  # in runs as short as these each may be lost in the noise
    rows, *dense = profile.layers
    assert rows.on[TYPE].comm_s > 0
    assert all(layer.on[TYPE].transfer_s > 0 for layer in dense)
    again = Profile.parse(profile.as_document(), "profile")
    samples = {"workload": job.workload.model_copy(update={"samples_per_epoch": 800})}
    Problem.of(job.model_copy(update={"profile": again.as_document(), **samples}))


@pytest.mark.slow
def test_what_was_measured_under_the_same_conditions_is_kept(job, profile, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: range(8))
    again = measure_profile(job, make_engine=_never, known=profile)
    assert again.layers == profile.layers


@pytest.mark.slow
def test_a_run_scales_the_layers_of_its_stage_to_what_it_measured(job, profile, data, tmp_path):
    document = profile.as_document()
    for layer in document["layers"]:
        layer["on"][TYPE]["compute_s"] /= 10
    changes = {"cluster__types": [SLOW, SLOWER, PAPER], "profile": document, "workload__epochs": 3}
    whole = {"assignment": [TYPE] * 12, **small_job(data, "ctrdnn").plan}
    run(small_job(data, "ctrdnn", plan=whole, **changes), tmp_path / "run")
    found, (factors,) = refit_profile(tmp_path / "run")
    assert factors.compute > 3
    before = document["layers"][2]["on"][TYPE]["compute_s"]
    assert found.layers[2].on[TYPE].compute_s == pytest.approx(factors.compute * before)
    assert found.types[TYPE].source == "refitted"


def _never(folder):
    raise AssertionError("nothing is to be started")


def test_a_type_that_is_neither_here_nor_in_the_catalogue_is_refused(data):
    gone = {"name": "gpu", "device": "cuda", "price_per_hour": 1.0, "limit": 2}
    job = small_job(data, "ctrdnn", cluster__types=[SLOW, gone])
    with pytest.raises(InputError, match=r"cluster.types\[1\].device: this machine has no cuda"):
        measure_profile(job, make_engine=_never)


def test_runs_divide_a_batch_and_leave_the_machine_room(data):
    job = small_job(data, "ctrdnn", cluster__types=[SLOW])
    entry = job.cluster.types[0]
    assert unit_counts(job, entry, 2) == [1, 4]
    assert unit_counts(job, entry.model_copy(update={"slowdown": 4.0}), 2) == [1, 2]
    assert unit_counts(job, entry.model_copy(update={"slowdown": 1.0}), 2) == [1]


def test_each_type_is_first_last_and_in_the_middle_once_if_there_is_room(data):
    fast = SLOW | {"name": "fast", "slowdown": 1.0}
    job = small_job(data, "ctrdnn", cluster__types=[fast, SLOW, SLOWER])
    lines = lines_of(job, job.cluster.types, 2, layers=13)
    pairs = [f"{TYPE}, slower", f"slower, {TYPE}"]
    assert [line.names for line in lines] == [*pairs, f"slower, {pairs[0]}", f"{TYPE}, {pairs[1]}"]
    assert [line.units for line in lines] == [(2, 2), (2, 2), (2, 2, 2), (2, 2, 1)]
    assert lines_of(job, job.cluster.types[1:2], 2, layers=13) == []
    assert len(lines_of(job, job.cluster.types, 8, layers=2)) == 3


def test_a_cut_shares_the_work_evenly(data):
    assert even_cuts([[1.0, 1.0, 2.0, 4.0]] * 2, (1, 1)) == (3,)
    assert even_cuts([[1.0, 1.0, 2.0, 4.0]] * 2, (1, 2)) == (2,)
    assert even_cuts([[9.0, 1.0], [1.0, 1.0]], (1, 1)) == (1,)
    assert even_cuts([[4.0, 1.0, 1.0, 2.0, 4.0]] * 3, (1, 1, 1)) == (1, 4)
    job = small_job(data, "ctrdnn", cluster__types=[SLOW, SLOWER])
    first, last = Line(job.cluster.types, (1, 2)).plan(3, [1])["stages"]
    assert first == {"first": 0, "last": 0, "type": TYPE, "units": 1}
    assert last == {"first": 1, "last": 2, "type": "slower", "units": 2}


def test_a_stage_is_compared_with_its_layers_at_the_pace_of_then(data):
    types = small_job(data, "ctrdnn", cluster__types=[SLOW, SLOWER]).cluster.types
    timed = Timed(Line(types, (1, 1)), said=[1.0, 1.0], took=[5.0, 1.2])
    assert timed.beside_s({TYPE: 2.0, "slower": 1.5}) == pytest.approx([1.5, -0.2])


def test_paces_are_looked_at_between_runs_of_stages_and_count_in_the_mean(data):
    types = small_job(data, "ctrdnn", cluster__types=[SLOW, SLOWER]).cluster.types
    three = (types[0], types[1], types[0])
    lines = [Line(types, (1, 1)), Line(types[::-1], (1, 1)), Line(three, (1, 1, 1))]
    done: list[object] = []
    paces = iter([{TYPE: 2.0, "slower": 1.0}, {TYPE: 4.0, "slower": 2.5}])

    def pace():
        done.append("pace")
        return next(paces)

    def time(line):
        done.append(line)
        return Timed(line, [1.0] * len(line.types), [6.0, *[0.7] * len(line.types[1:])])

    found, usual = in_turns(lines, {TYPE: 1.0, "slower": 1.0}, time, pace)
    assert done == [*lines[:2], "pace", lines[2], "pace"]
    first, in_the_first_half, later = 6.0 / 1.5 - 1, 6.0 / 1.0 - 1, 6.0 / 3.0 - 1
    assert found == {
        TYPE: {FIRST: pytest.approx((first + later) / 2), LAST: 0.0},
        "slower": {FIRST: pytest.approx(in_the_first_half), MIDDLE: 0.0, LAST: 0.0},
    }
    assert usual == {TYPE: pytest.approx(7 / 3), "slower": 1.5}


def test_without_lines_nothing_is_timed():
    assert in_turns([], {}, _never, _never) == ({}, {})


def test_layers_do_not_pay_for_the_stages_that_they_were_timed_in():
    assert without_stages([0.5, 1.5, 0.5], 1.5) == pytest.approx([0.25, 1.0, 0.25])
    assert sum(without_stages([0.1, 2.0, 0.9], 2.0)) == pytest.approx(2.4)  # none is less than 0
    assert without_stages([1.0, 2.0], 3.5) == [1.0, 2.0]
    assert without_stages([1.0], 1.0) == [1.0]


def test_conditions_are_the_model_the_unit_and_the_batches(data):
    job = small_job(data, "ctrdnn", cluster__types=[SLOW])
    key = measured_key(job, job.cluster.types[0])
    dearer = small_job(data, "ctrdnn", cluster__types=[SLOW | {"price_per_hour": 9, "limit": 3}])
    assert measured_key(dearer, dearer.cluster.types[0]) == key
    for changes in (
        {"cluster__types": [SLOW | {"slowdown": 9.0}]},
        {"model__args": {"dim": 4}},
        {"workload__micro_batches": 2},
        {"tables": {"default": {"rule": "adam"}}},
    ):
        other = small_job(data, "ctrdnn", **({"cluster__types": [SLOW]} | changes))
        assert measured_key(other, other.cluster.types[0]) != key
