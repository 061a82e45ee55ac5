"""A run on a folder that grows while it goes on."""

import json
import shutil

import fsspec
import pytest

from heterps.data.dataset import Dataset
from heterps.data.follow import only
from heterps.data.lane_plan import LanePlan
from heterps.errors import InputError
from heterps.events import read_events
from heterps.runtime.elastic import Elastic
from heterps.runtime.prepare import prepare
from heterps.runtime.resume import resumed
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.stop import Stop
from heterps.runtime.training import train_run
from heterps.testing.faults import Fault, Faults
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import batches_of_plan, make_data, outcome, reference, small_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROWS = ((200,), (90, 110), (330,))  # of the files of each arrival


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def make_job(data, folder, **changes):
    own = {"data__train": str(folder), "data__follow": True, "workload__epochs": 9}
    own |= {"optimizer__name": "adam", "snapshot__every": 4, "servers__count": 2}
    return small_job(data, "two_emb", (2, 1), **own | changes)


class Source:
    """Gives a folder, by path or URL, the files of an arrival when the one before is done, and
    `_END` with the last. ``report`` hears of a run."""

    def __init__(self, data, folder):
        self.folder = folder
        self._data = data
        self._files, self._path = fsspec.core.url_to_fs(str(folder))
        self._files.makedirs(self._path, exist_ok=True)
        self._left = list(enumerate(ROWS))
        self.give()
        job = make_job(data, folder)
        like = prepare(job).layout.train
        plan = LanePlan(sum(ROWS[0]), like.lanes, like.micro_batch_size, like.micro_batches)
        self.plans = [plan, plan.then(sum(ROWS[1])), plan.then(sum(ROWS[1])).then(sum(ROWS[2]))]

    def give(self):
        number, sizes = self._left.pop(0)
        for rows in sizes:
            for part in sorted((make_data(self._data, "clicks", rows) / "train").iterdir()):
                self._write(f"{number}-{rows}-{part.name}", part.read_bytes())
                self._write(f"{number}-{rows}-{part.name}.done")
        if not self._left:
            self._write("_END")

    def _write(self, name, contents=b""):
        self._files.pipe_file(f"{self._path}/{name}", contents)

    def report(self, status):
        if self._left and status.step >= self.plans[-len(self._left)].first_batch:
            self.give()


def arrivals(path):
    """Without the versions of the files, which each folder has its own of."""
    held = [json.loads(line) for line in (path / "arrivals.jsonl").read_text().splitlines()]
    assert all(len(entry.pop("versions")) == len(entry["files"]) for entry in held)
    return held


def trained(job, path, report, engine=ForkEngine, stop=None):
    setup = prepare(job)
    with RunFolder.create(path, setup.job, setup.plan_document()) as folder:
        train_run(setup, folder, report, engine, stop=stop)
    return outcome(folder)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    source = Source(data, path / "in")
    return source, path / "run", trained(make_job(data, path / "in"), path / "run", source.report)


def test_every_arrival_is_trained_on_once_as_one_process_would(data, undisturbed):
    source, path, found = undisturbed
    held = arrivals(path)
    assert [entry["samples"] for entry in held] == [200, 200, 330]
    assert all(name.startswith("1-") for name in held[1]["files"])
    job = make_job(data, source.folder)
    batches = [
        batch
        for plan, entry in zip(source.plans, held, strict=True)
        for batch in batches_of_plan(job, plan, Dataset.open(only(job.data, entry["files"])))
    ]
    expected = reference(job, batches=iter(batches))
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)
    assert found.distance(expected) <= 1e-2


def test_a_folder_on_a_server_is_followed_to_the_same_bits(data, tmp_path, far_folder, undisturbed):
    source = Source(data, far_folder)
    found = trained(make_job(data, far_folder), tmp_path / "run", source.report)
    assert arrivals(tmp_path / "run") == arrivals(undisturbed[1])
    assert found.equals(undisturbed[2])


def test_after_failures_and_a_stop_it_goes_on_to_the_same_bits(data, tmp_path, undisturbed):
    source, stop, path = Source(data, tmp_path / "in"), Stop(), tmp_path / "run"
    faults = Faults(Fault("server-1", 3), Fault("stage-0-replica-1", 9))

    def report(status):
        source.report(status)
        faults.report(status)
        if status.step > source.plans[1].first_batch + 3 and not stop.asked:
            stop.ask()

    with pytest.raises(KeyboardInterrupt):
        trained(make_job(data, source.folder), path, report, faults.engine, stop)
    assert len(faults.done) == 2
    again = tmp_path / "another-machine" / "run"
    again.mkdir(parents=True)
    for name in ("job.yaml", "plan.json", "events.jsonl"):
        shutil.copy(path / name, again)
    shutil.copytree(path / "snapshots", again / "snapshots")
    with resumed(again) as found:
        train_run(found.setup, found.folder, source.report, ForkEngine, start=found.start)
    assert arrivals(again) == arrivals(undisturbed[1])
    assert outcome(found.folder).equals(undisturbed[2])


def test_files_from_before_the_last_snapshot_may_be_gone_when_it_goes_on(
    data, tmp_path, undisturbed
):
    source, stop, path = Source(data, tmp_path / "in"), Stop(), tmp_path / "run"

    def report(status):
        if status.step == source.plans[1].first_batch:
            stop.ask()

    with pytest.raises(KeyboardInterrupt):
        trained(make_job(data, source.folder), path, report, stop=stop)
    for file in source.folder.iterdir():
        file.unlink()
    with resumed(path) as found:
        source.give()
        train_run(found.setup, found.folder, source.report, ForkEngine, start=found.start)
    assert arrivals(path) == arrivals(undisturbed[1])
    assert outcome(found.folder).equals(undisturbed[2])


def test_another_plan_needs_no_file_of_the_folder(data, tmp_path):
    source, said = Source(data, tmp_path / "in"), []
    setup = prepare(make_job(data, source.folder))
    shutil.rmtree(source.folder)
    elastic = Elastic(tmp_path, setup, said.append)
    elastic.plan({"cpu": 2})
    assert said == []
    assert elastic.proposal.urgent
    layout = elastic.proposal.setup.layout
    assert [stage.units for stage in layout.stages] == [1, 1]
    assert (layout.train, layout.stages[0].after) == (
        setup.layout.train,
        setup.layout.stages[0].after,
    )


def test_a_run_waits_with_a_snapshot_and_ends_when_nothing_comes(data, tmp_path):
    folder = tmp_path / "in"
    source = Source(data, folder)
    changes = {"data__follow": {"idle_s": 3}, "snapshot__every_s": 1, "snapshot__every": 1000}
    trained(make_job(data, folder, **changes), tmp_path / "run", lambda status: None)
    events = list(read_events(tmp_path / "run" / "events.jsonl"))
    steps = [event["step"] for event in events if event["kind"] == "snapshot"]
    assert steps[-1:] == [source.plans[1].first_batch]
    assert len(set(steps)) == len(steps), "one of a step is enough"
    assert [event["arrival"] for event in events if event["kind"] == "arrival"] == [0]


def test_what_cannot_be_followed_is_refused(data, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(InputError, match=r"data\.train: nothing has arrived in"):
        prepare(make_job(data, folder))
    Source(data, tmp_path / "full")
    falling = make_job(data, tmp_path / "full", optimizer__schedule={"kind": "linear"})
    with pytest.raises(InputError, match=r"optimizer\.schedule\.total: is missing: of data that"):
        prepare(falling)
