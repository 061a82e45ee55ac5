"""Runs whose data and snapshots are in HDFS."""

import shutil
import time
from pathlib import Path

import fsspec
import pytest

from heterps.errors import HeterPSError
from heterps.events import read_events
from heterps.runtime.prepare import prepare
from heterps.runtime.resume import resumed
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.snapshot import Snapshots
from heterps.runtime.stop import Stop
from heterps.runtime.training import train_run
from heterps.testing.commands import shell
from heterps.testing.faults import Fault, Faults
from heterps.testing.flaky import FlakyServer
from heterps.testing.forking import ForkEngine
from heterps.testing.hdfs import Hdfs
from heterps.testing.impatient import impatient
from heterps.testing.live_runs import LiveRun
from heterps.testing.runs import outcome, run, small_job
from heterps.testing.snapshots import flip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def make_job(data, **changes):
    own = {"workload__epochs": 2, "snapshot__every": 6, "snapshot__keep": 2}
    own |= {"optimizer__name": "adam", "servers__count": 2}
    return small_job(data, "two_emb", (2, 1), **own | changes)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return run(make_job(data), tmp_path_factory.mktemp("run") / "run")[1]


def with_data_at(data, url, **changes):
    """The same job with its files copied to a URL."""
    file_system, path = fsspec.core.url_to_fs(url)
    for file in Path(make_job(data).data.train[0]).parent.glob("*.parquet"):
        file_system.makedirs(path, exist_ok=True)
        file_system.pipe_file(f"{path}/{file.name}", file.read_bytes())
    return make_job(data, data__train=f"{url}/*.parquet", **changes)


def events(path, kind):
    return [event for event in read_events(path / "events.jsonl") if event["kind"] == kind]


def await_one(snapshots):
    """Training waits for it meanwhile."""
    while not snapshots.paths():
        time.sleep(0.05)


def trained(job, path, report, engine=ForkEngine, stop=None, notice=lambda line: None):
    setup = prepare(job)
    with RunFolder.create(path, setup.job, setup.plan_document()) as folder:
        return train_run(setup, folder, report, engine, stop=stop, notice=notice)


def test_a_run_goes_on_from_hdfs_after_failures_and_on_another_machine(
    data, hdfs, tmp_path, undisturbed
):
    job = with_data_at(data, f"{hdfs}/in", snapshot__to=f"{hdfs}/snapshots")
    path, stop, notes = tmp_path / "run", Stop(), []
    snapshots = Snapshots.of(path, job)

    def damage():
        """Of the first, which the others are deltas of, the contents: sizes stay."""
        await_one(snapshots)
        first = snapshots.paths()[-1]
        flip(first / next(name for name in first.files() if "/rows-" in name))

    faults = Faults(Fault("server-1", 16))

    def report(status):
        if status.step >= 16 and not faults.done:
            damage()
        faults.report(status)
        if status.step >= 30 and len(events(path, "ready")) == 2 and not stop.asked:
            stop.ask()

    with pytest.raises(KeyboardInterrupt):
        trained(job, path, report, faults.engine, stop, notes.append)
    assert not (path / "snapshots").exists()
    (warning,) = events(path, "warning")
    assert "its checksum differs" in warning["text"]
    assert warning["text"] in notes
    again = tmp_path / "another-machine" / "copy"
    again.mkdir(parents=True)
    for name in ("job.yaml", "plan.json", "events.jsonl"):
        shutil.copy(path / name, again)
    listed = shell("snapshot", "list", str(again), "--json").lines[0]["snapshots"]
    assert listed[0]["step"] == snapshots.last_step
    with resumed(again) as found:
        assert found.start.step == snapshots.last_step
        train_run(found.setup, found.folder, make_engine=ForkEngine, start=found.start)
    assert outcome(found.folder).equals(undisturbed)


def test_a_store_that_goes_away_stops_the_snapshots_and_not_the_training(
    data, hdfs_server, hdfs, tmp_path, undisturbed
):
    with FlakyServer(hdfs_server.web_url.replace("webhdfs", "http")) as door:
        url = f"{door.endpoint.replace('http', 'webhdfs')}/{hdfs.rpartition('/')[2]}"
        job = make_job(data, snapshot__to=url, snapshot__patience_s=0.3)
        path, notes = tmp_path / "run", []

        def report(status):
            if status.step >= 12 and not door.failures:
                await_one(Snapshots.of(path, job))
                door.failures = 10**9

        result = trained(job, path, report, notice=notes.append)
    assert result.failures == 0
    assert events(path, "snapshot")
    assert events(path, "snapshot_failed")
    assert "no snapshot was written, training goes on: webhdfs://" in notes[0]
    assert "cannot be reached, tried for" in notes[0]
    assert outcome(RunFolder.open(path)).equals(undisturbed)


def test_a_store_that_stays_away_ends_a_run_with_the_name_of_the_file(
    data, hdfs_server, hdfs, tmp_path
):
    with FlakyServer(hdfs_server.web_url.replace("webhdfs", "http")) as door:
        url = f"{door.endpoint.replace('http', 'webhdfs')}/{hdfs.rpartition('/')[2]}"
        setup = prepare(with_data_at(data, url, recovery__retries=0))
        door.about, door.failures = "op=OPEN", 10**9
        said = rf"^{url}/part-0000\d\.parquet: cannot be reached, tried .*\(stage-0-replica-\d\)$"
        with (
            RunFolder.create(tmp_path / "run", setup.job, setup.plan_document()) as folder,
            pytest.raises(HeterPSError, match=said),
        ):
            train_run(setup, folder, make_engine=impatient(0.5))


def test_a_datanode_that_is_away_for_five_seconds_does_not_end_heterps_train(data, tmp_path):
    with Hdfs(tmp_path / "hdfs") as server:
        job = with_data_at(data, f"{server.url}/in")
        live = LiveRun(job, tmp_path)
        try:
            live.until("started")
            server.kill()
            live.until("ready")
            time.sleep(5.0)
            assert events(live.path, "ended") == []
            server.restart()
            code, said = live.ended()
        finally:
            live.close()
        assert code == 0, said
        assert events(live.path, "failure") == []
