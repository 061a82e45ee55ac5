"""Limits that change while a run goes on."""

import json
import os
import signal
import threading

import pytest

from heterps.errors import InputError, NoRoomError, UnknownNameError
from heterps.events import read_events
from heterps.job.spec import Job
from heterps.runtime.building import build_model
from heterps.runtime.elastic import Elastic, read_limits, write_limits
from heterps.runtime.engines.ray.bundles import Node, bundles_of, limits
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.scaling import are_lost, used_units
from heterps.runtime.specs import units_of
from heterps.runtime.stop import Stop
from heterps.runtime.training import train_run
from heterps.testing.faults import dying_engine
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import SMALL, TYPE, outcome, reference, small_job, stages


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def make_job(data, replicas=(3, 1), **changes):
    return small_job(data, "two_emb", replicas, snapshot__every=10, **changes)


def test_limits_are_added_to_those_said_before(data, tmp_path):
    job = make_job(data)
    assert read_limits(tmp_path) == {}
    write_limits(tmp_path, job, {"cpu": 4})
    assert write_limits(tmp_path, job, {"cpu": 2}) == {"cpu": 2}
    assert read_limits(tmp_path) == {"cpu": 2}


def test_limits_that_make_no_sense_are_refused(data, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'cpu'"):
        write_limits(tmp_path, make_job(data), {"cpus": 4})
    with pytest.raises(InputError, match="expected 0 or more units, got -1"):
        write_limits(tmp_path, make_job(data), {"cpu": -1})


def test_too_few_units_for_any_plan_are_told(data, tmp_path):
    said = []
    elastic = Elastic(tmp_path, prepare(make_job(data)), said.append)
    elastic.plan({"cpu": 1})
    assert elastic.proposal is None
    assert elastic.error is not None
    assert said[0].startswith("there is no plan for cpu=1: cluster.types.cpu.limit: 1 units")


def test_units_that_come_back_while_a_run_starts_again_are_planned_for(data, tmp_path):
    """Nobody has looked at the limits between the failure and their return."""
    elastic = Elastic(tmp_path, prepare(make_job(data)), print)
    elastic.there = lambda units: {"cpu": 2}
    elastic.plan_at_once(elastic.limits())
    elastic.taken(elastic.proposal.setup)
    elastic.there = lambda units: {"cpu": 16}
    elastic.look()
    elastic.settle()
    assert [stage.units for stage in elastic.proposal.setup.layout.stages] == [3, 1]


def sharing(data, replicas, cpus, **changes):
    """A job whose stages are of types that take the same CPUs, of which there are so many beside
    the one of the server, and what the engine says."""
    entries = [{"name": name, "price_per_hour": 0.04, "limit": 4} for name in "ab"]
    document = make_job(data, replicas, cluster__types=entries, plan=None, **changes).document()
    layers = SMALL["two_emb"].layers
    document["plan"] = stages(layers, [layers // 2], replicas)
    for stage, name in zip(document["plan"]["stages"], "ab", strict=True):
        stage["type"] = name
    job = Job.parse(document).in_folder(data)
    nodes = [Node("x", "x", {"CPU": cpus + 1.0})]
    return job, lambda units: limits(units, bundles_of(job), nodes)


@pytest.mark.parametrize(("cpus", "units"), [(2, [1, 1]), (3, [2, 1]), (4, [2, 2])])
def test_units_that_share_a_resource_are_planned_for_as_many_as_there_are(
    data, tmp_path, cpus, units
):
    job, there = sharing(data, (2, 2), cpus)
    elastic = Elastic(tmp_path, prepare(job), print)
    elastic.there = there
    elastic.plan({"a": 2, "b": 2})
    found = elastic.proposal.setup if elastic.proposal else prepare(job)
    assert [stage.units for stage in found.layout.stages] == units


def test_a_plan_by_a_profile_takes_no_more_than_is_there_together(data, tmp_path):
    plain, there = sharing(data, (1, 1), 4, workload__min_throughput=1500)
    known = profile(plain, 0.01, on="ab")
    setup = prepare(plain.model_copy(update={"profile": known, "plan": None}))
    assert sum(stage.units for stage in setup.layout.stages) > 4
    elastic = Elastic(tmp_path, setup, print)
    elastic.there = there
    elastic.plan({"a": 4, "b": 4})
    found = elastic.proposal.setup
    used = used_units(found.job, found.layout.stages)
    assert used.total() == 4
    assert not are_lost(used, there(units_of(found.job, found.layout)))


def profile(job, compute_s, on=(TYPE,)):
    """Every layer takes that long for a batch of 32 on a unit, and more units share it."""
    figures = {"compute_s": compute_s, "alpha": 1.0, "comm_s": 0.0, "transfer_s": 0.0, "beta": 0.0}
    shape = {"kind": "dense", "input_bytes": 1, "weight_bytes": 1, "on": dict.fromkeys(on, figures)}
    return {"batch_size": 32, "layers": [{"name": n, **shape} for n in build_model(job).names]}


def test_what_was_seen_of_a_slower_model_gives_another_plan(data, tmp_path):
    plain, notes = make_job(data, (1,), workload__min_throughput=300), []
    setup = prepare(plain.model_copy(update={"profile": profile(plain, 0.01), "plan": None}))
    elastic = Elastic(tmp_path, setup, notes.append)
    elastic.plan_by_what_was_seen(lambda folder: profile(plain, 0.02))
    assert (elastic.proposal.reason, elastic.proposal.urgent) == ("drift", False)
    assert sum(stage.units for stage in elastic.proposal.setup.layout.stages) > 1
    estimate = elastic.estimate(1e6, 10.0)
    assert estimate.samples_per_s == pytest.approx(32 / (10 * 0.02))
    assert estimate.new_samples_per_s >= 300
    assert estimate.pays
    assert notes == []
    elastic.plan_by_what_was_seen(lambda folder: profile(plain, 1.0))
    assert max(stage.units for stage in elastic.proposal.setup.layout.stages) <= 4, "micro-batches"


def test_a_plan_that_is_still_the_best_by_what_was_seen_stays(data, tmp_path):
    plain, notes = make_job(data, (1,), workload__min_throughput=100), []
    setup = prepare(plain.model_copy(update={"profile": profile(plain, 0.01), "plan": None}))
    elastic = Elastic(tmp_path, setup, notes.append)
    elastic.plan_by_what_was_seen(lambda folder: profile(plain, 0.02))
    assert elastic.proposal is None
    assert notes == ["the plan stays: by what was seen so far it is still the best"]


def trained(job, path, engine=ForkEngine, report=lambda status: None, **options):
    setup, notes = prepare(job), []
    options = {"notice": notes.append} | options
    with RunFolder.create(path, setup.job, setup.plan_document()) as folder:
        train_run(setup, folder, report, engine, **options)
    kinds = ("replanned", "failure")
    found = [event for event in read_events(path / "events.jsonl") if event["kind"] in kinds]
    return outcome(folder), found, notes


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("by", ["a person", "the engine"])
def test_units_that_go_and_come_back_change_the_plan_and_not_the_result(data, tmp_path, by):
    job, path, there = make_job(data, workload__epochs=8), tmp_path / "run", {"cpu": 16}

    class Engine(ForkEngine):
        def limits(self, units):
            return there

    def report(status):
        limits = {"cpu": 2 if 20 <= status.step < 60 else 16}
        if by == "the engine":
            there.update(limits)
        elif limits != read_limits(path):
            write_limits(path, job, limits)

    found, events, notes = trained(job, path, Engine, report)
    assert [event["units"] for event in events] == [[1, 1], [3, 1]]
    assert notes[0] == "another plan for cpu=2"
    expected = reference(job)
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)
    assert found.distance(expected) <= 1e-5
    kept = json.loads((path / "plan.json").read_text())
    assert [stage["units"] for stage in kept["stages"]] == [3, 1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_units_that_others_take_first_are_done_without(data, tmp_path):
    """They are there when the plan for them is made, and not when it is to be placed."""
    job, path, there, wanted = make_job(data, workload__epochs=8), tmp_path / "run", {"cpu": 16}, []

    class Engine(ForkEngine):
        def limits(self, units):
            return dict(there)

        def place(self, units):
            wanted.append(sum(type_ == TYPE for type_ in units.values()))
            if len(wanted) > 1 and wanted[-1] > 2:
                there["cpu"] = 2
                raise NoRoomError("ray", "others use it")
            return super().place(units)

    def report(status):
        if len(wanted) == 1 and status.step >= 20:
            there["cpu"] = 2
        elif len(wanted) == 2 and status.step >= 60:
            there["cpu"] = 16

    found, events, _ = trained(job, path, Engine, report)
    assert [event.get("units", event.get("process")) for event in events] == [
        [1, 1],
        [3, 1],
        "the cluster",
        [1, 1],
    ]
    assert wanted == [4, 2, 4, 2]
    assert found.distance(reference(job)) <= 1e-5


@pytest.mark.slow
def test_a_run_that_nothing_is_free_for_does_not_begin(data, tmp_path):
    class Engine(ForkEngine):
        def place(self, units):
            raise NoRoomError("ray", "others use it")

    with pytest.raises(NoRoomError, match="others use it"):
        trained(make_job(data), tmp_path / "run", Engine)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_never_starts_costs_its_unit(data, tmp_path):
    job = make_job(data)
    engine = dying_engine("stage-0-replica-2", 99)
    found, events, _ = trained(job, tmp_path / "run", engine)
    assert [event.get("action") for event in events] == ["restart", "restart", "fewer", None]
    assert events[-1]["units"] == [2, 1]
    assert found.distance(reference(job)) <= 1e-5
    kept = RunFolder.open(tmp_path / "run").job
    assert kept.cluster == job.cluster, "a run that is resumed may find the unit again"


WAITS = "waiting up to {:g} s for units to come; Ctrl-C ends the run"


class Losing:
    """Engines that wait so long, and lose all units but one at step 20, with a worker if ``kills``;
    they are back as soon as somebody waits for them, if they come ``back`` at all. ``notes`` are
    what the person has read."""

    def __init__(self, wait_s, *, kills=False, back=True):
        self.there, self.wait_s, self.handles = {"cpu": 16}, wait_s, {}
        self.notes, self._kills, self._back = [], kills, back

    def engine(self, folder):
        cluster = self

        class Engine(ForkEngine):
            wait_s = cluster.wait_s

            def limits(self, units):
                return dict(cluster.there)

            def start(self, spec):
                cluster.handles[spec.name] = super().start(spec)
                return cluster.handles[spec.name]

        return Engine(folder)

    def report(self, status):
        if status.step >= 20 and self.there == {"cpu": 16} and not self.notes:
            self.there["cpu"] = 1
            if self._kills:
                os.kill(self.handles["stage-1-replica-0"].pid, signal.SIGKILL)

    def notice(self, line):
        self.notes.append(line)
        if self._back and line == WAITS.format(self.wait_s):
            self.there["cpu"] = 16


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [False, True])
def test_units_without_which_there_is_no_plan_are_waited_for(data, tmp_path, kills):
    job, cluster = make_job(data, workload__epochs=8), Losing(60.0, kills=kills)
    found, events, _ = trained(
        job, tmp_path / "run", cluster.engine, cluster.report, notice=cluster.notice
    )
    assert cluster.notes.count(WAITS.format(60)) == 1
    assert sum(line.startswith("there is no plan for cpu=1") for line in cluster.notes) == 1
    assert [event for event in events if event["kind"] == "replanned"] == []
    assert found.distance(reference(job)) <= 1e-5


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("by", "wait_s", "waits"),
    [("the engine", 2.0, True), ("the engine", 0.0, False), ("a person", 250.0, False)],
)
def test_the_wait_for_units_has_an_end(data, tmp_path, by, wait_s, waits):
    job, path = make_job(data, workload__epochs=8), tmp_path / "run"
    cluster = Losing(wait_s, back=False)

    def report(status):
        if by == "the engine":
            cluster.report(status)
        elif status.step >= 20:
            write_limits(path, job, {"cpu": 1})

    with pytest.raises(InputError, match="1 units of 'cpu' are too few for 2 stages"):
        trained(job, path, cluster.engine, report, notice=cluster.notice)
    assert (WAITS.format(wait_s) in cluster.notes) == waits


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_person_can_end_the_wait_for_units(data, tmp_path):
    job, path = make_job(data, workload__epochs=8), tmp_path / "run"
    cluster, stop = Losing(250.0, back=False), Stop()

    def notice(line):
        cluster.notice(line)
        if line == WAITS.format(250):
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()

    before = signal.signal(signal.SIGINT, stop.ask)
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(job, path, cluster.engine, cluster.report, notice=notice, stop=stop)
    finally:
        signal.signal(signal.SIGINT, before)
    *_, last = read_events(path / "events.jsonl")
    assert last["kind"] == "interrupted"
    assert last["snapshot"] is not None
