"""What arrives, without a run around it."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heterps.data.lane_plan import LanePlan
from heterps.data.schema import SlotKind
from heterps.errors import InputError
from heterps.runtime.snapshot import RunSnapshot
from heterps.runtime.stream import Stream
from heterps.testing.runs import small_job

LIKE = LanePlan(1, 3, 2, 2)


@pytest.fixture
def job(tmp_path):
    (tmp_path / "in").mkdir()
    follow = {"idle_s": 5.0}
    return small_job(tmp_path, "ctrdnn", data__train="in", data__follow=follow, workload__epochs=3)


def arrive(tmp_path, name, rows, **values):
    columns = {column: [value] * rows for column, value in {"label": 1.0, **values}.items()}
    pq.write_table(pa.table(columns), tmp_path / "in" / name)
    (tmp_path / "in" / f"{name}.done").touch()


def test_each_arrival_is_an_epoch_and_found_again_after_a_restart(tmp_path, job):
    stream = Stream(tmp_path, job, LIKE)
    arrive(tmp_path, "b.parquet", 7)
    arrive(tmp_path, "a.parquet", 5)
    first = stream.at(0)
    assert (first.arrival.names, first.plan.samples) == (("a.parquet", "b.parquet"), 12)
    assert stream.at(first.end - 1) == first
    assert stream.at(first.end) is None
    assert not stream.ended
    arrive(tmp_path, "c.parquet", 3)
    second = stream.at(first.end)
    assert (second.plan.epoch, second.plan.first_batch, second.plan.samples) == (1, first.end, 3)
    again = Stream(tmp_path, job, LIKE)
    assert (again.at(0), again.at(first.end)) == (first, second)


def test_a_snapshot_is_enough_on_another_machine(tmp_path, job):
    arrive(tmp_path, "a.parquet", 5)
    stream = Stream(tmp_path, job, LIKE)
    first = stream.at(0)
    assert stream.documents(0) == []
    start = RunSnapshot(tmp_path, {"step": 1, "arrivals": stream.documents(1)})
    (tmp_path / "elsewhere").mkdir()
    arrive(tmp_path, "b.parquet", 5)
    assert Stream(tmp_path / "elsewhere", job, LIKE, start).at(0) == first


def test_a_file_that_was_replaced_is_refused_when_it_is_to_be_read_again(tmp_path, job):
    arrive(tmp_path, "a.parquet", 5, label=0.0)
    stream = Stream(tmp_path, job, LIKE)
    first = stream.at(0)
    start = RunSnapshot(tmp_path, {"step": 1, "arrivals": stream.documents(1)})
    arrive(tmp_path, "a.parquet", 5, label=1.0)
    arrive(tmp_path, "b.parquet", 5)
    assert stream.at(0) == first, "what this stream has opened itself"
    said = r"^in/a\.parquet: has been replaced since it arrived .*: put back what was there"
    with pytest.raises(InputError, match=said):
        Stream(tmp_path, job, LIKE).at(0)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(InputError, match=said):
        Stream(tmp_path / "elsewhere", job, LIKE, start).at(0)
    assert Stream(tmp_path, job, LIKE).at(first.end).arrival.names == ("b.parquet",)


def test_a_file_that_was_replaced_goes_unnoticed_by_records_without_versions(tmp_path, job):
    arrive(tmp_path, "a.parquet", 5, label=0.0)
    first = Stream(tmp_path, job, LIKE).at(0)
    line = {"arrival": 0, "files": ["a.parquet"], "samples": 5}
    (tmp_path / "arrivals.jsonl").write_text(json.dumps(line) + "\n")
    arrive(tmp_path, "a.parquet", 5, label=1.0)
    assert Stream(tmp_path, job, LIKE).at(0) == first


def test_a_link_to_a_file_is_as_old_as_the_file(tmp_path, job):
    arrive(tmp_path, "a.parquet", 5)
    target = (tmp_path / "in" / "a.parquet").rename(tmp_path / "a.parquet")
    os.utime(target, (0, 0))
    (tmp_path / "in" / "a.parquet").symlink_to(target)
    first = Stream(tmp_path, job, LIKE).at(0)
    assert Stream(tmp_path, job, LIKE).at(0) == first


def test_an_arrival_with_other_ids_than_those_before_is_refused_and_not_recorded(tmp_path, job):
    slot = job.data.sparse[0].name
    stream = Stream(tmp_path, job, LIKE)
    arrive(tmp_path, "a.parquet", 5, **{slot: 7})
    first = stream.at(0)
    assert stream.kinds[slot].kind == "whole numbers"
    arrive(tmp_path, "b.parquet", 5, **{slot: "7"})
    said = rf"'{slot}' of .*/b\.parquet holds texts \(string\), that of .*/a\.parquet whole numbers"
    with pytest.raises(InputError, match=said):
        stream.at(first.end)
    again = Stream(tmp_path, job, LIKE, kinds={slot: SlotKind("whole numbers", "the run")})
    with pytest.raises(InputError, match="and the run was trained on whole numbers"):
        again.at(first.end)


def test_it_ends_by_a_marker_by_time_and_by_epochs(tmp_path, job):
    now = [0.0]
    stream = Stream(tmp_path, job, LIKE, clock=lambda: now[0])
    assert stream.at(0) is None
    now[0] = 4.9
    assert stream.at(0) is None
    assert not stream.ended
    now[0] = 5.0
    assert stream.at(0) is None
    assert stream.ended
    (tmp_path / "in" / "_END").touch()
    arrive(tmp_path, "a.parquet", 5)
    step = 0
    stream = Stream(tmp_path, job, LIKE)
    while (found := stream.at(step)) is not None:
        step = found.end
    assert stream.ended
    for number in range(3):
        arrive(tmp_path, f"more-{number}.parquet", 5)
        found = stream.at(step)
        step = found.end if found else step
    assert stream.at(step) is None
    assert len((tmp_path / "arrivals.jsonl").read_text().splitlines()) == 3


def test_files_without_rows_are_waited_with(tmp_path, job):
    stream = Stream(tmp_path, job, LIKE)
    arrive(tmp_path, "a.parquet", 0)
    assert stream.at(0) is None
    arrive(tmp_path, "b.parquet", 4)
    assert stream.at(0).arrival.names == ("a.parquet", "b.parquet")


def test_a_folder_that_goes_is_one_line(tmp_path, job):
    stream = Stream(tmp_path, job, LIKE)
    (tmp_path / "in").rmdir()
    with pytest.raises(InputError, match=r"^data\.train: 'in' is no folder"):
        stream.at(0)
