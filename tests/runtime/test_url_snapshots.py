"""Snapshots of a run at a URL, without a run around them."""

import pytest
import torch

from heterps.errors import InputError, SnapshotError
from heterps.ps import SparseTable
from heterps.runtime.identity import Identity
from heterps.runtime.snapshot import Check, Snapshots, base_of, next_base
from heterps.storage.places import place
from heterps.testing.runs import small_job
from heterps.testing.snapshots import flip, write_chain

pytestmark = pytest.mark.slow
STATE = {"layer.weight": torch.arange(6.0)}


@pytest.fixture(params=["hdfs", "s3"])
def snapshots(request, tmp_path):
    folder = place(f"{request.getfixturevalue(request.param)}/r")
    return Snapshots(tmp_path, 2, folder, Identity.new().id)


def steps_of(snapshots):
    return [int(path.name.split("-")[1]) for path in snapshots.paths()]


def rows_file(path):
    return path / next(name for name in path.files() if "/rows-" in name)


def test_what_goes_in_comes_back_and_bases_are_kept_as_long_as_they_are_needed(snapshots):
    write_chain(snapshots, STATE, 1, 2, 3)
    found = snapshots.newest()
    assert (found.step, found.about["lanes"]) == (3, 16)
    assert torch.equal(found.state()["layer.weight"], STATE["layer.weight"])
    table = SparseTable(2, "sgd")
    table.load(found.tables)
    assert len(table) == 3
    assert steps_of(snapshots) == [3, 2, 1]
    assert base_of(snapshots.paths()[0]) == snapshots.paths()[1].name
    assert next_base(found.tables) == found.tables
    write_chain(snapshots, STATE, 4)
    write_chain(snapshots, STATE, 5)
    assert steps_of(snapshots) == [5, 4]
    write_chain(snapshots, STATE, 5)
    assert steps_of(snapshots) == [5, 4], "a step that is reached again is written again"


def test_damage_is_found_set_aside_and_the_one_before_is_used(snapshots):
    write_chain(snapshots, STATE, 1)
    write_chain(snapshots, STATE, 2, 3)
    newest, said = snapshots.paths()[0], []
    flip(rows_file(newest))
    assert snapshots.newest().step == 3, "contents are for those to check who load them"
    with pytest.raises(SnapshotError, match=r"rows-.*: its checksum differs"):
        Check()(newest)
    assert snapshots.newest(said.append, thorough=True).step == 2
    rows_file(newest).remove()
    assert snapshots.newest(said.append).step == 2
    assert [line.partition("; ")[2][:23] for line in said] == ["going on from step-0000"] * 2
    snapshots.set_aside_after(2)
    snapshots.sweep()
    assert steps_of(snapshots) == [2, 1]
    assert "damaged.json" in newest.files()


def test_what_a_killed_writer_has_left_is_no_snapshot_and_is_swept(snapshots):
    write_chain(snapshots, STATE, 3)
    torn = snapshots.folder / "step-00000009-0123abcd"
    (torn / "tables/manifest.json").write_text("{}")
    assert snapshots.last_step == 3
    snapshots.sweep()
    assert torn.files() == {}


def test_a_new_run_does_not_take_the_place_of_another(snapshots, tmp_path):
    snapshots.claim()
    snapshots.claim()
    write_chain(snapshots, STATE, 3)
    snapshots.claim()
    other = Snapshots(tmp_path, 2, snapshots.folder, Identity.new().id)
    with pytest.raises(InputError, match=r"^snapshot.to: .*/r holds snapshots of another run"):
        other.claim()


def test_a_store_that_is_away_is_no_damage(tmp_path, s3):
    job = small_job(tmp_path, "ctrdnn", snapshot__to="webhdfs://127.0.0.1:1/a")
    changed = job.snapshot.model_copy(update={"patience_s": 0.2})
    gone = Snapshots.of(tmp_path / "run", job.model_copy(update={"snapshot": changed}))
    assert str(gone.folder) == "webhdfs://127.0.0.1:1/a/run"
    with pytest.raises(InputError, match="cannot be reached"):
        gone.newest()
    none = Snapshots(tmp_path, 2, place("s3://none-such/r"), Identity.new().id)
    with pytest.raises(InputError, match=r"^s3://none-such/r.*: cannot be written"):
        none.claim()
