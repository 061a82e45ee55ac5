"""Whose snapshots a folder outside of the run's holds."""

import shutil
from contextlib import closing, suppress

import pytest
import torch

from heterps.errors import InputError
from heterps.runtime.identity import Identity, id_at
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.snapshot import Snapshots
from heterps.testing.runs import small_job
from heterps.testing.snapshots import write_chain

STATE = {"layer.weight": torch.arange(6.0)}


@pytest.fixture(params=["disk", "hdfs", "s3"])
def to(request, tmp_path):
    if request.param == "disk":
        return str(tmp_path / "snapshots")
    return request.getfixturevalue(request.param)


def make(tmp_path, to, folder="here"):
    """A new run by the name of ``run``; its snapshots."""
    path, job = tmp_path / folder / "run", small_job(tmp_path, "ctrdnn", snapshot__to=to)
    RunFolder.create(path, job).close()
    return Snapshots.of(path, job)


def taken_up(path):
    """The snapshots of a run that goes on."""
    folder = RunFolder.open(path)
    with closing(folder):
        folder.lock()
        folder.identify()
        found = Snapshots.of(path, folder.job)
        folder.claim(found, again=True)
        return found


@pytest.mark.slow
def test_two_runs_of_one_name_do_not_share_a_folder(to, tmp_path):
    first = make(tmp_path, to)
    said = rf"^snapshot.to: .*/run is that of another run \({tmp_path}/here/run\): delete run.json"
    with pytest.raises(InputError, match=said):
        make(tmp_path, to, "there")
    write_chain(first, STATE, 1)
    with pytest.raises(InputError, match=r"^snapshot.to: .*/run holds snapshots of another run"):
        make(tmp_path, to, "elsewhere")
    assert taken_up(tmp_path / "here" / "run").newest().step == 1


def fails(tmp_path, to, before=lambda snapshots: None):
    """A start that ends after ``before``; its snapshots."""
    path, job = tmp_path / "here/run", small_job(tmp_path, "ctrdnn", snapshot__to=to)
    with suppress(KeyboardInterrupt), RunFolder.create(path, job):
        before(Snapshots.of(path, job))
        raise KeyboardInterrupt
    return Snapshots.of(path, job)


@pytest.mark.slow
def test_a_start_that_fails_before_its_first_snapshot_leaves_the_place_to_others(to, tmp_path):
    first, path = fails(tmp_path, to), tmp_path / "here/run"
    assert id_at(first.folder) is None
    with RunFolder.open(path) as folder:
        folder.claim(first, again=True)
        assert id_at(first.folder) == Identity.of(path).id
    make(tmp_path, to, "there")
    with pytest.raises(InputError, match="another run"):
        taken_up(path)


@pytest.mark.slow
def test_a_start_that_fails_after_a_snapshot_keeps_its_place(to, tmp_path):
    first = fails(tmp_path, to, lambda snapshots: write_chain(snapshots, STATE, 1))
    assert id_at(first.folder) == Identity.of(tmp_path / "here/run").id


@pytest.mark.slow
def test_a_start_that_fails_leaves_what_another_has_claimed_meanwhile(to, tmp_path):
    def let_go(snapshots):
        snapshots.withdraw()
        make(tmp_path, to, "there")

    first = fails(tmp_path, to, let_go)
    assert id_at(first.folder) == Identity.of(tmp_path / "there/run").id


def test_a_store_that_fails_as_well_does_not_hide_how_a_start_ended(tmp_path):
    def damage(snapshots):
        (snapshots.folder / "run.json").unlink()
        (snapshots.folder / "run.json").mkdir()

    fails(tmp_path, str(tmp_path / "snapshots"), damage)


def test_a_start_that_cannot_make_its_folder_leaves_the_place_to_others(tmp_path):
    job = small_job(tmp_path, "ctrdnn", snapshot__to=str(tmp_path / "snapshots"))
    missing = job.model_copy(update={"model": {"file": str(tmp_path / "none.py")}})
    with pytest.raises(InputError, match=r"none\.py cannot be read"):
        RunFolder.create(tmp_path / "run", missing)
    RunFolder.create(tmp_path / "again/run", job).close()


@pytest.mark.slow
def test_a_folder_with_the_job_alone_is_that_of_its_snapshots(to, tmp_path):
    first = make(tmp_path, to)
    write_chain(first, STATE, 1, 2)
    copy = tmp_path / "machine" / "copy"
    copy.mkdir(parents=True)
    owner = first.folder / "run.json"
    owner.remove() if first.are_remote else owner.unlink()
    taken_up(tmp_path / "here/run")
    shutil.copy(tmp_path / "here/run/job.yaml", copy)
    again = taken_up(copy)
    assert again.newest().step == 2
    assert Identity.of(copy) == Identity.of(tmp_path / "here/run")
    write_chain(again, STATE, 3)
    assert taken_up(tmp_path / "here/run").newest().step == 3


@pytest.mark.slow
def test_what_an_earlier_version_has_left_is_gone_on_with(to, tmp_path):
    first = make(tmp_path, to)
    before = Snapshots(tmp_path, folder=first.folder)
    write_chain(before, STATE, 1, 2)
    if first.are_remote:
        (first.folder / "run.json").write_text('{"run": "/somewhere"}')
    else:
        (first.folder / "run.json").unlink()
    path = tmp_path / "here/run"
    (path / "identity.json").unlink()
    again = taken_up(path)
    assert again.newest().step == 2
    write_chain(again, STATE, 3)
    assert taken_up(path).newest().step == 3
    (path / "identity.json").unlink()
    RunFolder.create(tmp_path / "other/run", small_job(tmp_path, "ctrdnn")).close()
    shutil.copy(tmp_path / "other/run/identity.json", path)
    with pytest.raises(InputError, match="another run"):
        taken_up(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hdfs", "s3"])
def test_runs_that_share_a_folder_leave_each_other_alone(kind, request, tmp_path):
    """As when ``run.json`` of one that goes on was deleted."""
    mine = make(tmp_path, request.getfixturevalue(kind))
    write_chain(mine, STATE, 1)
    theirs = Snapshots(tmp_path, 1, mine.folder, Identity.new().id)
    write_chain(theirs, STATE, 5)
    write_chain(theirs, STATE, 6)
    torn = mine.folder / mine.paths()[0].name.replace("step-00000001", "step-00000002")
    (torn / "tables/manifest.json").write_text("{}")
    theirs.sweep()
    theirs.set_aside_after(0)
    assert torn.files()
    assert mine.newest().step == 1
    assert theirs.newest() is None
    mine.sweep()
    assert not torn.files()


def test_a_folder_that_cannot_be_written_to_is_told_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/run: cannot be written \(Not a directory\)"):
        make(tmp_path, str(tmp_path / "file"))


def test_an_identity_that_is_torn_is_named(tmp_path):
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(InputError, match=r"identity\.json: cannot be read"):
        Identity.of(tmp_path)
