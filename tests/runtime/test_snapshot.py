"""Snapshots on disk, without a run around them."""

import os
import shutil
import threading

import pytest
import torch

from heterps.errors import SnapshotError
from heterps.ps import SparseTable
from heterps.runtime.saved_model import saving
from heterps.runtime.snapshot import Snapshots, base_of, next_base, verified
from heterps.runtime.snapshot_writer import Writer
from heterps.testing.snapshots import flip, write_chain

STATE = {"layer.weight": torch.arange(6.0), "optimizer/layer.weight/exp_avg": torch.ones(6)}


@pytest.fixture
def snapshots(tmp_path):
    return Snapshots(tmp_path, keep=3)


def write(snapshots, *steps):
    table = SparseTable(2, "sgd")
    table.pull([1, 2, 3])

    for step in steps:
        snapshots.write(step, STATE, {"lanes": 16}, table.save)


def names(snapshots):
    return [path.name for path in snapshots.paths()]


def test_a_snapshot_gives_back_what_went_in(snapshots):
    write(snapshots, 12)
    found = snapshots.newest()
    assert (found.step, found.about["lanes"]) == (12, 16)
    assert all(torch.equal(found.state()[name], held) for name, held in STATE.items())
    assert (found.tables / "manifest.json").exists()


def test_the_last_ones_are_kept(snapshots):
    write(snapshots, 2, 4, 6, 8, 10)
    assert names(snapshots) == ["step-00000010", "step-00000008", "step-00000006"]


def test_a_step_that_is_reached_again_is_written_again(snapshots):
    write(snapshots, 2, 4, 4)
    assert names(snapshots) == ["step-00000004", "step-00000002"]
    assert snapshots.newest().step == 4


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file())


def truncate(file):
    os.truncate(file, file.stat().st_size - 9)


@pytest.mark.parametrize("damage", [truncate, flip, os.remove])
def test_damage_to_any_file_is_found_and_the_one_before_is_used(tmp_path, damage):
    whole = Snapshots(tmp_path / "0")
    write(whole, 5)
    for number in range(len(files_of(whole.paths()[0]))):
        snapshots, said = Snapshots(tmp_path / f"{damage.__name__}-{number}"), []
        write(snapshots, 3, 5)
        file = files_of(snapshots.paths()[0])[number]
        damage(file)
        assert snapshots.newest(said.append).step == 3, file
        (line,) = said
        assert line.endswith("going on from step-00000003")
        assert "\n" not in line


def test_bases_are_kept_as_long_as_a_delta_needs_them(tmp_path):
    snapshots = Snapshots(tmp_path, keep=2)
    write_chain(snapshots, STATE, 1, 2, 3, 4)
    assert len(names(snapshots)) == 4
    assert base_of(snapshots.paths()[0]) == "step-00000003"
    write_chain(snapshots, STATE, 5, 6)
    assert len(names(snapshots)) == 6, "5 is the base of both that are kept, and may be torn"
    write_chain(snapshots, STATE, 7)
    assert names(snapshots) == ["step-00000007", "step-00000006", "step-00000005"]
    assert base_of(snapshots.paths()[2]) is None


@pytest.mark.parametrize("damage", [truncate, flip, os.remove])
def test_of_a_torn_delta_the_one_before_is_used(snapshots, damage):
    write_chain(snapshots, STATE, 1, 2, 3)
    damage(next((snapshots.paths()[0] / "tables" / "table").iterdir()))
    said = []
    found = snapshots.newest(said.append)
    assert found.step == 2
    table = SparseTable(2, "sgd")
    table.load(found.tables)
    assert len(table) == 2
    (line,) = said
    assert line.endswith("going on from step-00000002")


def test_a_torn_base_is_told_once_and_takes_its_deltas_with_it(snapshots):
    write_chain(snapshots, STATE, 1)
    write_chain(snapshots, STATE, 2, 3, 4)
    flip(next((snapshots.paths()[2] / "tables" / "table").iterdir()))
    said = []
    assert snapshots.newest(said.append).step == 1
    (line,) = said
    assert "step-00000002" in line


def test_a_whole_one_is_due_when_its_deltas_hold_far_more_rows(snapshots):
    write_chain(snapshots, STATE, *range(1, 6))
    assert next_base(snapshots.paths()[0] / "tables") is not None
    write_chain(snapshots, STATE, *range(7, 13))
    assert next_base(snapshots.paths()[0] / "tables") is None
    assert next_base(snapshots.folder / "nowhere") is None


def test_when_all_are_damaged_there_is_none(snapshots):
    write(snapshots, 3, 5)
    for path in snapshots.paths():
        flip(path / "dense.safetensors")
    said = []
    assert snapshots.newest(said.append) is None
    assert said[-1].endswith("there is none before it")


def test_a_run_without_snapshots_has_no_newest(snapshots):
    assert snapshots.newest() is None
    assert snapshots.last_step is None


def test_a_snapshot_without_its_step_is_none(snapshots):
    write(snapshots, 3)
    with saving(snapshots.folder / "step-00000004", {"lanes": 16}) as folder:
        SparseTable(2, "sgd").save(folder / "tables")
    with pytest.raises(SnapshotError, match="does not say at which step"):
        verified(snapshots.paths()[0])


def test_what_a_killed_writer_has_left_is_no_snapshot_and_is_swept(snapshots):
    write(snapshots, 3)
    torn = snapshots.folder / "step-00000009.partial-0123456789ab"
    torn.mkdir()
    assert snapshots.last_step == 3
    snapshots.sweep()
    assert not torn.exists()


def test_what_is_half_written_is_no_snapshot_whatever_its_name_ends_with(snapshots):
    write(snapshots, 3)
    (snapshots.folder / "step-00000009.partial-012345678901").mkdir()
    assert names(snapshots) == ["step-00000003"]


def test_a_kill_while_an_old_one_is_removed_leaves_no_snapshot(snapshots, monkeypatch):
    write(snapshots, 2)
    old = snapshots.paths()[0]
    write(snapshots, 4, 6)

    def begin_to_remove(path, **_):
        (path / "manifest.json").unlink(missing_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", begin_to_remove)
        write(snapshots, 8)
    assert not old.exists()
    assert names(snapshots) == ["step-00000008", "step-00000006", "step-00000004"]
    snapshots.sweep()
    assert len(list(snapshots.folder.iterdir())) == 3


def test_one_that_cannot_be_read_does_not_keep_the_others(tmp_path):
    snapshots = Snapshots(tmp_path, keep=2)
    write(snapshots, 2, 4)
    (snapshots.paths()[1] / "tables" / "manifest.json").unlink()
    write(snapshots, 6)
    assert names(snapshots) == ["step-00000006", "step-00000004"]
    flip(snapshots.paths()[0] / "tables" / "manifest.json")
    write(snapshots, 8)
    assert names(snapshots) == ["step-00000008", "step-00000006", "step-00000004"]
    write(snapshots, 10)
    assert names(snapshots) == ["step-00000010", "step-00000008"]


def test_damaged_ones_do_not_crowd_out_those_that_come_later(tmp_path):
    snapshots = Snapshots(tmp_path, keep=1)
    write(snapshots, 9)
    snapshots.set_aside_after(4)
    write(snapshots, 5)
    assert names(snapshots) == ["step-00000005"]
    assert (snapshots.folder / "step-00000009.damaged").exists()


def test_a_writer_says_what_came_of_its_work():
    writer, may_end = Writer(), threading.Event()

    def work():
        may_end.wait()
        return {"step": 3}

    def fail():
        raise OSError(28, "No space left on device")

    writer.start(work)
    assert writer.busy
    assert list(writer.outcomes()) == []
    may_end.set()
    writer.finish()
    assert not writer.busy
    writer.start(fail)
    writer.finish()
    assert list(writer.outcomes()) == [
        {"step": 3},
        {"error": "[Errno 28] No space left on device"},
    ]
