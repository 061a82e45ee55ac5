"""Runs whose snapshots go elsewhere than before, or where servers do not see them."""

import os
import shutil

import pytest

from heterps.errors import InputError
from heterps.events import read_events
from heterps.runtime.identity import Identity
from heterps.runtime.prepare import prepare
from heterps.runtime.resume import resumed
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.snapshot import Snapshots
from heterps.runtime.training import train_run
from heterps.testing.commands import shell
from heterps.testing.faults import dying_engine
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import outcome, run, small_job
from heterps.testing.snapshots import flip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BACK = ["snapshot.to=null", "snapshot.name=null"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def make_job(data, **changes):
    own = {"workload__epochs": 1, "snapshot__every": 6, "optimizer__name": "adam"}
    return small_job(data, "two_emb", (1, 1), **own | changes)


def events(path, kind):
    return [event for event in read_events(path / "events.jsonl") if event["kind"] == kind]


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return run(make_job(data), tmp_path_factory.mktemp("whole") / "run")[1]


@pytest.fixture(scope="module")
def begun(data, tmp_path_factory):
    """A run that has got to step 12, in a folder that is copied to go on."""
    path = tmp_path_factory.mktemp("begun") / "run"
    run(make_job(data, workload__epochs=0.5), path)
    (path / "metrics.json").unlink()
    document = (path / "job.yaml").read_text().replace("epochs: 0.5", "epochs: 1.0")
    (path / "job.yaml").write_text(document)
    return path


def begin_elsewhere(path, to):
    """As by a coordinator that is killed before its first snapshot."""
    with resumed(path, changes=[f"snapshot.to={to}"]) as found:
        return found.start.step


def test_what_is_elsewhere_is_not_lost_by_a_crash_before_the_first_snapshot(
    begun, tmp_path, undisturbed
):
    path = shutil.copytree(begun, tmp_path / "run")
    assert begin_elsewhere(path, tmp_path / "new") == 12
    assert begin_elsewhere(path, tmp_path / "newer") == 12
    assert Snapshots.of(path, RunFolder.open(path).job).last_step == 12
    listed = shell("snapshot", "list", str(path), "--json").lines[0]["snapshots"]
    assert [row["step"] for row in listed] == [12, 6]
    with resumed(path, changes=BACK) as found:
        assert found.start.step == 12
    begin_elsewhere(path, tmp_path / "new")
    with resumed(path) as found:
        train_run(found.setup, found.folder, make_engine=ForkEngine, start=found.start)
    assert outcome(RunFolder.open(path)).equals(undisturbed)
    assert Identity.of(path).earlier == ()
    assert [event["step"] for event in events(path, "snapshot")][2:] == [18, 24]
    assert [held.name for held in (tmp_path / "new/run").glob("step-*")]


def test_a_change_that_is_refused_claims_no_place(begun, tmp_path):
    path = shutil.copytree(begun, tmp_path / "run")
    changes = [f"snapshot.to={tmp_path}/new", "seed=6"]
    with pytest.raises(InputError, match=r"^seed: "), resumed(path, changes=changes):
        pass
    assert not (tmp_path / "new").exists()


def test_the_newest_of_both_is_taken(begun, tmp_path):
    path = shutil.copytree(begun, tmp_path / "run")
    begin_elsewhere(path, tmp_path / "new")
    with resumed(path) as found:
        train_run(found.setup, found.folder, make_engine=ForkEngine, start=found.start)
    longer = "workload.epochs=2"
    with resumed(path, changes=[*BACK, longer]) as found:
        assert found.start.step == 24
    with resumed(path, changes=[longer]) as found:
        assert found.start.step == 24
        assert found.start.path.is_relative_to(tmp_path / "new")


def test_a_failure_before_the_first_snapshot_leads_to_the_earlier_place(
    begun, tmp_path, undisturbed
):
    path = shutil.copytree(begun, tmp_path / "run")
    flip(path / "snapshots/step-00000012/dense.safetensors")
    with resumed(path, changes=[f"snapshot.to={tmp_path}/new"]) as found:
        assert found.start.step == 6
        engine = dying_engine("server-0", 1)
        train_run(found.setup, found.folder, make_engine=engine, start=found.start)
    assert [event["step"] for event in events(path, "ready")] == [0, 6]
    assert outcome(RunFolder.open(path)).equals(undisturbed)


class Away(ForkEngine):
    """Its servers work in another folder than all others."""

    def start(self, spec):
        if spec.name.startswith("server"):
            return self.start_after(spec, os.chdir, str(self.folder))
        return super().start(spec)


def test_servers_that_see_the_run_and_not_its_snapshots_hand_them_over(
    data, tmp_path, monkeypatch, undisturbed
):
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    job = make_job(data, snapshot__to="/proc/self/cwd/snapshots", workload__epochs=0.5)
    path, setup = tmp_path / "run", prepare(job)
    with RunFolder.create(path, setup.job, setup.plan_document()) as folder:
        train_run(setup, folder, make_engine=Away)
    assert not events(path, "snapshot_failed")
    assert [event["step"] for event in events(path, "snapshot")] == [6, 12]
    with resumed(path, changes=["workload.epochs=1"]) as found:
        train_run(found.setup, found.folder, make_engine=Away, start=found.start)
    assert events(path, "resumed")[0]["step"] == 12
    assert outcome(RunFolder.open(path)).equals(undisturbed)
