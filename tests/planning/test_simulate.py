import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.errors import InputError
from heterps.planning.conditions import Conditions
from heterps.planning.cost_model import Stage
from heterps.planning.plan import make_plan
from heterps.planning.problem import Problem
from heterps.planning.profile import Profile
from heterps.planning.replica_queue import Shape
from heterps.planning.service_times import ServiceTimes, Sizes, service_times
from heterps.planning.simulate import simulate, simulate_stages


def stage(replicas=1, forward_s=1.0, backward_s=2.0, **more):
    return ServiceTimes("cpu", replicas, forward_s, backward_s, **more)


def period(stages, m=1, staleness=0, batches=64, lanes=16, **conditions):
    """Seconds a batch in the steady state."""
    units = tuple(entry.replicas for entry in stages)
    shape = Shape(lanes, units, m, staleness, batches)
    return m / simulate_stages(stages, shape, Conditions(**conditions)).samples_per_s


def test_one_stage_takes_forward_and_backward():
    assert period([stage()]) == pytest.approx(3)


def test_one_micro_batch_is_in_one_stage_at_a_time():
    assert period([stage(), stage()]) == pytest.approx(1 + 1 + 2 + 2)


def test_four_micro_batches_overlap_but_for_fill_and_drain():
    # The second stage works from 1 to 13 and the first goes backward a last time until 15.
    assert period([stage(), stage()], m=4) == pytest.approx(15)


def test_gradients_of_inputs_leave_before_those_of_weights_are_made():
    # The second stage hands its gradients back a second before it is through.
    split = [stage(weights_s=1.0), stage(weights_s=1.0)]
    assert period(split) == pytest.approx(1 + 1 + 1 + 2)
    # It hands the last ones back at 9 and goes on with weights until 13. By then the first stage,
    # through with its own at 12, has sent it the next batch: it is always at work.
    assert period(split, m=4) == pytest.approx(12)


def test_two_replicas_before_one_share_the_micro_batches_of_a_batch():
    # Both go forward until 2 and 4; the second stage works from 2 to 14; one goes back until 18.
    assert period([stage(2, 2, 4), stage()], m=4) == pytest.approx(18)


def test_staleness_keeps_both_stages_busy():
    assert period([stage(), stage()], staleness=2) == pytest.approx(3)


def test_credit_bounds_what_is_under_way_on_a_long_way():
    # Four micro-batches of 1 s forward, 10 on the way, 1 + 1, 10 on the way, 1 back.
    stages = [stage(1, 1, 1, latency_s=5.0), stage(1, 1, 1, latency_s=5.0)]
    assert period(stages, staleness=50, batches=300) == pytest.approx(24 / 4)


def test_the_way_between_two_hosts_is_gone_once_each_way():
    # And as many micro-batches again are under way.
    stages = [stage(1, 1, 1, way_s=10.0), stage(1, 1, 1, way_s=6.0)]
    assert period(stages, staleness=50, batches=300) == pytest.approx(24 / 8)


def test_rows_are_waited_for_on_their_way_from_the_commit_of_the_batch_before():
    # Their gradients are a second under way, and rows that were asked for before another one.
    assert period([stage(latency_s=1.0, rows=True)]) == pytest.approx(5)
    assert period([stage(way_s=1.0, rows=True)]) == pytest.approx(5)
    assert period([stage(way_s=1.0, rows=True)], staleness=2) == pytest.approx(3)


def test_communication_runs_beside_compute_unless_it_is_said_not_to():
    busy = [stage(fetch_s=5.0)]
    assert period(busy, m=4, staleness=2) == pytest.approx(20)
    assert period(busy, m=4, staleness=2, overlap=0.0) == pytest.approx(32)


def test_a_commit_holds_its_stage_up_unless_staleness_lets_it_run_beside_the_work():
    assert period([stage(sync_s=1.0)], m=2) == pytest.approx(7)
    assert period([stage(sync_s=1.0)], m=2, staleness=1) == pytest.approx(6)
    assert period([stage(sync_s=8.0)], m=2, staleness=1) == pytest.approx(8)


def test_inputs_of_the_next_batch_arrive_while_a_replica_waits_for_the_sum_of_this_one():
    # The slow replica takes 12 s a batch; the quick one has done its part in 6, and what it goes on
    # with comes over its link in the 6 s that are left.
    split = stage(2, 1, 5, weights_s=4.0, receive_s=1.0)
    conditions = Conditions(slow={(1, 1): 2.0})
    found = simulate_stages([stage(1, 1, 0), split], Shape(16, (1, 2), 2, 0, 64), conditions)
    assert 2 / found.samples_per_s == pytest.approx(12)
    waiting = found.stages[1].waiting
    assert waiting["commit"] == pytest.approx(0.25)
    assert waiting["input"] == 0


def test_replicas_without_weights_do_not_wait_for_each_other():
    shape = Shape(16, (2, 1), 3, 0, 64)
    waits = [
        simulate_stages([stage(2, sums=sums), stage()], shape).stages[0].waiting["commit"]
        for sums in (True, False)
    ]
    assert waits[0] > 0.1
    assert waits[1] == 0


def test_rows_of_a_batch_are_pulled_after_the_commit_before_it():
    rows = stage(fetch_s=1.0, push_s=1.0, rows=True)
    assert period([rows]) == pytest.approx(5)
    # With staleness the pull is there in time, and nobody waits for the push.
    assert period([rows], staleness=2) == pytest.approx(3)


def test_the_exchange_of_a_commit_comes_before_rows_of_the_next_batch():
    # Exchange until 4, the first rows until 5, two micro-batches until 11, the last push until 12.
    rows = stage(fetch_s=1.0, push_s=1.0, sync_s=4.0, rows=True)
    assert period([rows], m=2) == pytest.approx(12)


def test_summing_takes_the_time_of_threads_and_an_exchange_goes_on_beside_them():
    for beside, of_threads, expected in [(1.0, 0.0, 3), (0.0, 1.0, 4)]:
        own = stage(2, sync_s=beside, sum_s=of_threads)
        assert period([own], m=2, staleness=2) == pytest.approx(expected)
        assert period([own], m=2) == pytest.approx(4)


def test_servers_are_shared_by_all_replicas():
    rows = stage(4, rows=True)
    assert period([rows], m=4, staleness=3, batches=80, server_s=5.0) == pytest.approx(40)


def test_the_slowest_replica_holds_up_all_of_them():
    assert period([stage(2)], m=4, staleness=2, slow={(0, 1): 2.0}) == pytest.approx(12)


def test_lanes_that_replicas_do_not_divide_make_one_of_them_work_more():
    # Of 16 lanes three replicas have 6, 5 and 5.
    even = period([stage(3)], m=48, staleness=2, lanes=48)
    assert period([stage(3)], m=48, staleness=2) == pytest.approx(even * 6 * 3 / 16)


def test_jitter_is_reproducible_and_costs_throughput():
    stages = [stage(4, 4, 8), stage()]
    noisy = period(stages, m=8, jitter=0.3, seed=1)
    assert noisy == period(stages, m=8, jitter=0.3, seed=1)
    assert noisy > period(stages, m=8)


def test_the_verdict_names_what_sets_the_pace():
    shape = Shape(16, (1, 1), 4, 2, 64)
    found = simulate_stages([stage(), stage(1, 2, 4, fetch_s=1.0)], shape)
    assert found.bound.startswith("stage 1 on cpu sets the pace, bound by compute")
    assert found.stages[0].waiting["credit"] > 0.3
    synchronous = simulate_stages([stage(), stage()], Shape(16, (1, 1), 1, 0, 64))
    assert "waits 50 % of it for the commit of an earlier batch" in synchronous.bound


@pytest.mark.parametrize("batches", [1, 2, 3, 5])
def test_short_runs_have_a_figure_or_none(batches):
    found = simulate_stages([stage(), stage()], Shape(16, (1, 1), 2, 0, batches))
    assert found.run_samples_per_s == pytest.approx(2 / 9)
    assert found.samples_per_s == (None if batches == 1 else pytest.approx(2 / 9))


@st.composite
def pipelines(draw):
    """One stage sets the pace; the others have half of their time left.

    A batch's end costs up to two micro-batches of waiting, whatever m is, so m is large.
    """
    units = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))
    slowest = draw(st.integers(0, len(units) - 1))
    stages = []
    for at, k in enumerate(units):
        load = 1.0 if at == slowest else draw(st.floats(0.1, 0.5))
        comm = load * k * draw(st.floats(0, 0.3))
        moved = {"receive_s": comm / 4 if at else 0.0, "fetch_s": comm / 2}
        stages.append(stage(k, load * k / 3, 2 * load * k / 3, **moved))
    return stages, 64 * math.lcm(*units)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(pipelines())
def test_a_full_pipeline_reaches_the_formula(drawn):
    stages, m = drawn
    assert period(stages, m=m, staleness=2, batches=24) == pytest.approx(m, rel=0.01)


def problem(**workload):
    figures = {"compute_s": 0.2, "comm_s": 0.1, "alpha": 0.9, "beta": 0.8, "transfer_s": 0.05}
    on = {"cpu": figures, "gpu": figures | {"compute_s": 0.02}}
    layers = [
        {"name": n, "kind": kind, "input_bytes": 4, "weight_bytes": 4, "on": on}
        for n, kind in (("rows", "embedding"), ("fc", "fc"))
    ]
    types = [{"name": n, "price_per_hour": 1, "limit": 16} for n in ("cpu", "gpu")]
    return Problem.parse(
        {
            "cluster": {"types": types},
            "profile": {"batch_size": 100, "layers": layers},
            "workload": {"batch_size": 3200, "samples_per_epoch": 1e6, "epochs": 1} | workload,
        }
    )


def test_a_plan_in_the_steady_state_reaches_its_predicted_throughput():
    given_problem = problem(micro_batches=64, staleness=2)
    plan = make_plan(given_problem, "given", ["cpu", "gpu"], [4, 2])
    found = simulate(given_problem, plan)
    assert found.predicted == plan.throughput
    assert found.of_predicted == pytest.approx(1, rel=0.01)
    assert simulate(given_problem, plan, staleness=0).of_predicted < 0.9


def test_a_stage_computes_longer_beside_others_than_alone():
    plain = problem(micro_batches=64, staleness=2)
    document = plain.as_document()
    # On one unit of cpu, a layer takes 0.1 s for a micro-batch.
    places = {"first_stage_s": 0.05, "middle_stage_s": 0.04, "last_stage_s": 0.025}
    measured = {"source": "measured", **places}
    document["profile"]["types"] = dict.fromkeys(("cpu", "gpu"), measured)
    longer = Problem.parse(document)

    def reached(said, types, units):
        found = simulate(said, make_plan(said, "given", types, units)).samples_per_s
        assert found is not None
        return found

    alone, first_sets_the_pace = (["cpu", "cpu"], [4]), (["cpu", "gpu"], [1, 4])
    assert reached(longer, *alone) == reached(plain, *alone)
    assert reached(longer, *first_sets_the_pace) == pytest.approx(
        reached(plain, *first_sets_the_pace) / 1.5, rel=0.01
    )
    last_sets_the_pace = (["gpu", "cpu"], [4, 1])
    assert reached(longer, *last_sets_the_pace) == pytest.approx(
        reached(plain, *last_sets_the_pace) / 1.25, rel=0.01
    )


def test_a_profile_may_say_how_much_of_a_layer_goes_forward():
    document = problem(micro_batches=32).as_document()
    for layer, share in zip(document["profile"]["layers"], (0.75, None), strict=True):
        layer["on"] = {"cpu": layer["on"]["cpu"] | {"alpha": 1.0, "forward": share}}
    found = service_times(Problem.parse(document), Stage(0, 1, "cpu"), 1, 32)
    assert found.forward_s == pytest.approx(0.2 * 3 / 4 + 0.2 / 3)
    assert found.backward_s == pytest.approx(0.2 / 4 + 0.2 * 2 / 3)
    assert found.weights_s == pytest.approx(0.2 / 3)


def test_a_unit_takes_longer_beside_others_of_its_host():
    plain = problem(micro_batches=32)
    document = plain.as_document()
    document["profile"]["types"] = {"cpu": {"source": "measured", "crowding": 0.1}}
    crowded = Problem.parse(document)
    alone, beside = (
        service_times(crowded, Stage(0, 1, "cpu"), 1, 32, crowd=crowd) for crowd in (0.0, 0.3)
    )
    assert beside.compute_s == pytest.approx(1.3 * alone.compute_s)
    found, quicker = (
        simulate(each, make_plan(each, "given", ["cpu", "gpu"], [1, 3]), staleness=2)
        for each in (crowded, plain)
    )
    assert found.samples_per_s == pytest.approx(quicker.samples_per_s / 1.3, rel=0.01)


def test_what_ports_carry_is_in_no_other_time():
    document = problem(micro_batches=32).as_document()
    link = {"hosts": {"h": 4}, "servers_on": ["s"], "link_mbps": 8.0}
    document["profile"]["types"] = {n: {"source": "measured", **link} for n in ("cpu", "gpu")}
    rows, fc = document["profile"]["layers"]
    rows["rows"] = {"there_bytes": 40_000, "back_bytes": 30_000}
    fc["cut"] = {"there_bytes": 20_000, "back_bytes": 10_000}
    known = Problem.parse(document)
    plain, ported = (
        service_times(known, Stage(0, 0, "cpu"), 1, 32, ports=ports) for ports in (False, True)
    )
    assert plain.sizes == Sizes()
    assert ported.sizes == Sizes(on=20_000, ask=5_000, rows=30_000, push=35_000)
    assert plain.fetch_s + plain.push_s - ported.fetch_s - ported.push_s == pytest.approx(0.04)
    assert plain.send_s - ported.send_s == pytest.approx(0.01)
    last = service_times(known, Stage(1, 1, "gpu"), 1, 32, ports=True)
    assert last.sizes == Sizes(back=10_000)


def test_what_a_stage_takes_beside_its_layers_depends_on_its_place():
    document = problem().profile.as_document()

    def beside_s(*types, **places):
        about = {"gpu": {"source": "measured", **places}}
        return Profile.parse({**document, "types": about}, "profile").beside_layers_s(types)

    places = {"first_stage_s": 1.5, "middle_stage_s": 1.4, "last_stage_s": 1.25}
    assert beside_s("gpu", **places) == [0.0]
    assert beside_s("gpu", "gpu", **places) == [1.5, 1.25]
    assert beside_s("gpu", "gpu", "gpu", "gpu", **places) == [1.5, 1.4, 1.4, 1.25]
    assert beside_s("cpu", "gpu", "gpu", **places) == [0.0, 1.4, 1.25]
    of_two = {"first_stage_s": 1.5, "last_stage_s": 0.0}
    assert beside_s("gpu", "gpu", "gpu", **of_two) == [1.5, 1.5, 0.0]


def test_more_replicas_than_micro_batches_are_refused_as_in_a_run():
    given_problem = problem(micro_batches=2)
    plan = make_plan(given_problem, "given", ["cpu", "cpu"], [4])
    with pytest.raises(InputError, match=r"4 replicas share 2 micro-batches"):
        simulate(given_problem, plan)
    assert simulate(given_problem, plan, staleness=2).samples_per_s


def test_a_straggler_that_is_not_there_is_refused():
    plan = make_plan(problem(), "given", ["cpu", "cpu"], [1])
    with pytest.raises(InputError, match="no replica 3 of stage 0"):
        simulate(problem(), plan, Conditions(slow={(0, 3): 2.0}))


def test_a_plan_that_takes_no_time_has_no_figure():
    none = simulate_stages([stage(1, 0.0, 0.0)], Shape(16, (1,), 1, 0, 8))
    assert (none.samples_per_s, none.bound) == (None, "nothing takes any time")


@pytest.mark.slow
def test_thousands_of_workers_are_simulated():
    stages = [stage(3000, fetch_s=0.5, push_s=0.5, rows=True), stage(1000, 0.3, 0.6)]
    found = simulate_stages(stages, Shape(3000, (3000, 1000), 3000, 2, 12))
    assert 0.5 < found.samples_per_s / 1000 <= 1
