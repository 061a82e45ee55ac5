"""A run that was ended goes on, under its plan or another, as if nothing had been."""

import hashlib
import json
import re
import shutil

import pytest
import torch

from heterps.data.source import find_files
from heterps.errors import InputError, NoRoomError
from heterps.events import read_events
from heterps.runtime.prepare import prepare
from heterps.runtime.resume import resumed
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.stop import Stop
from heterps.runtime.training import train_run
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import (
    SMALL,
    TYPE,
    outcome,
    reference,
    run,
    saved_rows,
    small_job,
    stages,
)
from heterps.testing.samples import with_texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CUT_SHORT = {"workload__epochs": 0.3, "snapshot__every": 3}
LONGER = ["workload.epochs=1"]
CLOSE = {"sgd": 1e-5, "adam": 1e-2}  # as in test_equivalence


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def make_job(data, model="two_emb", replicas=(2, 1), **changes):
    own = {"workload__epochs": 2, "snapshot__every": 9, "optimizer__name": "adam"}
    return small_job(data, model, replicas, **own | changes)


def interrupted(job, path, at=12):
    """Ends with a snapshot once so many batches are done."""
    setup, stop = prepare(job), Stop()

    def report(status):
        if status.step >= at and not stop.asked:
            stop.ask()

    with (
        RunFolder.create(path, setup.job, setup.plan_document()) as folder,
        pytest.raises(KeyboardInterrupt),
    ):
        train_run(setup, folder, report, ForkEngine, stop=stop)
    return path


def go_on(path, plan=None, changes=(), engine=ForkEngine):
    with resumed(path, plan, changes) as found:
        train_run(found.setup, found.folder, make_engine=engine, start=found.start)
    return outcome(found.folder)


def events(path, kind):
    return [event for event in read_events(path / "events.jsonl") if event["kind"] == kind]


def test_an_interrupted_run_goes_on_to_the_same_bits(data, tmp_path):
    job = make_job(data)
    path = interrupted(job, tmp_path / "run")
    (ending,) = events(path, "interrupted")
    assert 12 <= ending["snapshot"] == ending["step"] < 50
    found = go_on(path)
    assert events(path, "resumed")[0]["step"] == ending["snapshot"]
    assert found.equals(run(job, tmp_path / "whole")[1])


def test_a_table_goes_on_at_another_rate(data, tmp_path):
    path = interrupted(make_job(data, snapshot__every=18), tmp_path / "run")
    (ending,) = events(path, "interrupted")
    before = saved_rows(path / "snapshots" / f"step-{ending['snapshot']:08d}" / "tables")
    after = go_on(path, changes=["tables.narrow.lr=0"]).rows
    still = {
        name: torch.equal(rows.values, after[name].values[torch.isin(after[name].ids, rows.ids)])
        for name, rows in before.items()
    }
    assert still == {"default": False, "narrow": True}


@pytest.mark.parametrize("optimizer", CLOSE)
@pytest.mark.parametrize(("replicas", "servers"), [((1,), 1), ((2, 4), 5)])
def test_a_run_goes_on_under_another_plan_and_other_servers(
    data, tmp_path, optimizer, replicas, servers
):
    changes = {"optimizer__name": optimizer, "servers__count": 2}
    job = make_job(data, "ctrdnn", (3, 2, 1), **changes)
    path = interrupted(job, tmp_path / "run")
    layers = SMALL["ctrdnn"].layers
    plan = stages(layers, [layers // 2] if len(replicas) == 2 else [], replicas)
    found = go_on(path, plan, [f"servers.count={servers}"])
    expected = reference(job)
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)
    assert found.distance(expected) <= CLOSE[optimizer]
    kept = json.loads((path / "plan.json").read_text())["stages"]
    assert [stage["units"] for stage in kept] == list(replicas)


def test_a_run_goes_on_with_the_units_that_are_left(data, tmp_path):
    class Engine(ForkEngine):
        def limits(self, units):
            return {TYPE: 2}

        def place(self, units):
            if len(units) > 3:
                raise NoRoomError("ray", "the cluster lacks what the plan needs")
            return super().place(units)

    job = make_job(data, optimizer__name="sgd")
    path = interrupted(job, tmp_path / "run")
    found = go_on(path, engine=Engine)
    assert [event["units"] for event in events(path, "replanned")] == [[1, 1]]
    assert found.distance(reference(job)) <= CLOSE["sgd"]


def test_what_a_killed_coordinator_has_left_does_not_hinder(data, tmp_path):
    job = make_job(data, servers__count=1)
    path = interrupted(job, tmp_path / "run")
    gone = {"shard": 4, "shards": 5, "generation": 0, "addresses": ["ipc:///nowhere"]}
    gone |= {"encrypt": False, "pid": 1, "host": "here"}
    (path / "servers" / "shard-4.json").write_text(json.dumps(gone))
    (path / "sockets").mkdir()
    (path / "sockets" / "control").write_text("")
    (path / "snapshots" / "step-00000099.partial-0123456789ab").mkdir()
    assert go_on(path).equals(run(job, tmp_path / "whole")[1])
    assert list(path.glob("**/*partial*")) == []
    assert not (path / "sockets").exists()


def test_a_run_without_snapshots_begins_again(data, tmp_path):
    job = make_job(data)
    path = interrupted(job, tmp_path / "run")
    shutil.rmtree(path / "snapshots")
    assert go_on(path).equals(run(job, tmp_path / "whole")[1])


@pytest.fixture(scope="module")
def ended(data, tmp_path_factory):
    """A run with a snapshot in the middle of an epoch, in a folder that is copied to go on."""
    path = tmp_path_factory.mktemp("ended") / "run"
    run(make_job(data, **CUT_SHORT), path)
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["workload.batch_size=64"], "workload.batch_size: the run began with 32; with 64 it"),
        (["workload.micro_batches=8"], "workload.micro_batches: the run began with 4; with 8 it"),
        (["data.validation=0.5"], "data.train: the run began with 800 samples to train on, now"),
        (["seed=9"], "seed: the run began with 5; with 9 it would skip samples, or repeat them"),
    ],
)
def test_what_would_skip_or_repeat_samples_is_refused(ended, tmp_path, changes, said):
    path = shutil.copytree(ended, tmp_path / "run")
    with (
        pytest.raises(InputError, match=re.escape(said)),
        resumed(path, changes=[*LONGER, *changes]),
    ):
        pass


def test_files_that_are_taken_from_a_folder_are_noticed(data, tmp_path):
    job = make_job(data)
    found = find_files(job.data.train, "data.train", job.folder)
    (tmp_path / "data").mkdir()
    for file in found:
        shutil.copy(file.url, tmp_path / "data")
    own = make_job(data, **CUT_SHORT, data__train=f"{tmp_path}/data/*.parquet")
    run(own, tmp_path / "run")
    next((tmp_path / "data").iterdir()).unlink()
    said = r"data.train: the run began with 800 samples to train on, now there are \d+: give it the"
    with pytest.raises(InputError, match=said), resumed(tmp_path / "run", changes=LONGER):
        pass


def test_other_ids_than_those_trained_on_are_refused(data, ended, tmp_path):
    job = make_job(data)
    slot, found = job.data.sparse[0].name, find_files(job.data.train, base=job.folder)
    texts = [with_texts(file.path, slot, tmp_path / f"{n}.parquet") for n, file in enumerate(found)]
    path = shutil.copytree(ended, tmp_path / "run")
    said = rf"'{slot}' of .*0\.parquet holds texts .* and the run was trained on whole numbers"
    changes = [*LONGER, f"data.train={json.dumps([*map(str, texts)])}"]
    with pytest.raises(InputError, match=said), resumed(path, changes=changes):
        pass


def test_a_snapshot_that_has_cursors_alone_is_compared_by_them(ended, tmp_path):
    path = shutil.copytree(ended, tmp_path / "run")
    for manifest in path.glob("snapshots/*/manifest.json"):
        body = json.loads(manifest.read_text())
        assert body["about"].pop("data")["samples"] == 800
        del body["blake2b"]
        text = json.dumps(body, sort_keys=True).encode()
        body["blake2b"] = hashlib.blake2b(text, digest_size=16).hexdigest()
        manifest.write_text(json.dumps(body))
    with resumed(path, changes=[*LONGER, "optimizer.lr=0.5", "servers.count=1"]) as found:
        assert found.start.step == 6
    said = r"batch_size: step 6 began with micro-batch 24, and now with 48: go on with"
    with (
        pytest.raises(InputError, match=said),
        resumed(path, changes=["workload.micro_batches=8"]),
    ):
        pass


def test_what_cannot_go_on_is_refused(data, tmp_path):
    job = make_job(data, **CUT_SHORT)
    path = tmp_path / "run"
    run(job, path)
    with RunFolder.open(path) as folder:
        folder.lock()
        with pytest.raises(InputError, match="coordinated by another process"):
            go_on(path)
    longer = go_on(path, changes=["workload.epochs=1"])
    whole = make_job(data, workload__epochs=1, snapshot__every=3)
    assert longer.equals(run(whole, tmp_path / "whole")[1])


@pytest.mark.parametrize(
    "changes", [[], ["servers.count=1"], ["workload.epochs=0.05"], ["optimizer.lr=0.5"]]
)
def test_a_run_that_has_ended_has_to_be_told_of_more(ended, tmp_path, changes):
    path = shutil.copytree(ended, tmp_path / "run")
    said = r"has ended after 9 batches \(workload.epochs: 0.3\); .* --set workload.epochs=1$"
    with pytest.raises(InputError, match=said), resumed(path, changes=changes):
        pass
    assert (path / "metrics.json").exists()
    with resumed(path, changes=LONGER) as found:
        assert found.start.step == 6
    with resumed(path) as found:
        assert found.setup.layout.batches > 9, "it was told of more, and has not got there"


def test_a_run_that_has_ended_is_not_trained_again_from_its_beginning(ended, tmp_path):
    path = shutil.copytree(ended, tmp_path / "my run")
    shutil.rmtree(path / "snapshots")
    said = rf"has no snapshot to go on from: .* --set 'warm_start={path}' from its model$"
    for changes in [[], LONGER]:
        with pytest.raises(InputError, match=said), resumed(path, changes=changes):
            pass
    assert (path / "metrics.json").exists()


def test_a_run_that_has_ended_early_has_to_be_told_of_more_patience(data, tmp_path):
    still = {f"{owner}__lr": 0 for owner in ("optimizer", "tables__default", "tables__narrow")}
    validated = {"data__validation": 0.2, "validation__every": 2, "validation__patience": 1}
    path = tmp_path / "run"
    run(make_job(data, **CUT_SHORT, **still, **validated), path)
    said = r"has ended early after 4 batches .* --set validation.patience=2$"
    with pytest.raises(InputError, match=said), resumed(path, changes=LONGER):
        pass
    with resumed(path, changes=["validation.patience=2"]) as found:
        assert found.start.step == 3


def test_a_snapshot_past_the_end_is_refused(data, tmp_path):
    path = interrupted(make_job(data), tmp_path / "run")
    with (
        pytest.raises(InputError, match=r"its snapshot is past the end: step \d+ of 2$"),
        resumed(path, changes=["workload.epochs=0.05"]),
    ):
        pass
