import time
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.data.follow import Arrival, Arrivals, as_found, check_unchanged, next_arrival
from heterps.data.source import find_files
from heterps.errors import InputError
from heterps.job.data import DataSpec


def test_files_with_a_marker_come_by_name_and_others_wait():
    names = ["b.parquet", "b.parquet.done", "a.parquet", "c.parquet", "a.parquet.done", "x.done"]
    assert next_arrival(names, []) == ("a.parquet", "b.parquet")
    assert next_arrival(names, ["a.parquet"]) == ("b.parquet",)


def test_hidden_and_other_files_are_no_data():
    names = ["_a.parquet", "_a.parquet.done", ".b.tsv", ".b.tsv.done", "readme", "readme.done"]
    assert next_arrival(names, []) == ()


def test_what_a_file_was_is_told_alike_by_the_record_and_by_a_later_look(far_folder: str):
    system, path = fsspec.core.url_to_fs(far_folder)
    system.makedirs(path, exist_ok=True)
    system.pipe_file(f"{path}/a.tsv", b"1")
    [file] = find_files([f"{far_folder}/a.tsv"])
    assert file.version != "1", "more than its size"
    arrival = Arrival(0, ("a.tsv",), 1, (file.version,))
    spec = DataSpec.parse({"train": far_folder, "dense": ["I1"], "follow": True})
    check_unchanged(spec, arrival)
    time.sleep(0.01)  # HDFS counts milliseconds
    system.pipe_file(f"{path}/a.tsv", b"2")
    with pytest.raises(InputError, match=r"/a\.tsv: has been replaced since it arrived"):
        check_unchanged(spec, arrival)
    system.rm(f"{path}/a.tsv")
    check_unchanged(spec, arrival)


@settings(deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdefgh")), max_size=6))
def test_every_file_arrives_once_whenever_one_looks(looks: list[set[str]]):
    there: set[str] = set()
    taken: list[str] = []
    for new in looks:
        there |= {f"{name}.tsv{end}" for name in new for end in ("", ".done")}
        taken += next_arrival(there, taken)
    assert sorted(taken) == sorted(name for name in there if name.endswith(".tsv"))


def test_what_was_recorded_is_there_after_a_restart(tmp_path: Path):
    path = tmp_path / "arrivals.jsonl"
    arrivals = Arrivals(path)
    arrivals.record(["b.tsv"], 7)
    second = arrivals.record(["a.tsv"], 5, ["9-1.5"])
    again = Arrivals(path)
    assert len(again) == 2
    assert again[1] == second == Arrival(1, ("a.tsv",), 5)
    assert (again[0].versions, again[1].versions) == ((), ("9-1.5",))
    assert again.taken == ["b.tsv", "a.tsv"]


def test_a_snapshots_arrivals_are_taken_over_and_others_refused(tmp_path: Path):
    arrivals = Arrivals(tmp_path / "here")
    arrivals.record(["b.tsv"], 7)
    arrivals.record(["a.tsv"], 5)
    elsewhere = Arrivals(tmp_path / "elsewhere")
    elsewhere.take_over(arrivals.documents(1))
    assert Arrivals(tmp_path / "elsewhere")[0] == arrivals[0]
    arrivals.take_over(elsewhere.documents(1))
    assert len(arrivals) == 2, "what the run folder has more of stays"
    other = Arrivals(tmp_path / "other")
    other.record(["c.tsv"], 7)
    with pytest.raises(InputError, match="other: has other arrivals than the snapshot"):
        other.take_over(arrivals.documents(2))


def test_a_folder_that_is_followed_gives_what_is_there(tmp_path: Path):
    spec = DataSpec.parse({"train": str(tmp_path / "in"), "dense": ["I1"], "follow": True})
    with pytest.raises(InputError, match=r"^data\.train: '.*in' is no folder"):
        as_found(spec)
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match=r"^data\.train: nothing has arrived in '.*in' yet: a"):
        as_found(spec)
    for name in ("a.tsv", "b.tsv", "b.tsv.done", "_END"):
        (tmp_path / "in" / name).touch()
    found = as_found(spec)
    assert (found.train, found.follow) == ((str(tmp_path / "in/b.tsv"),), None)
    assert as_found(found) is found


@pytest.mark.parametrize(
    "line",
    [
        '{"arrival": 1, "files": [], "samples": 1}',
        '{"arrival": 0, "samples": 1}',
        '{"arrival": 0, "files": ["a"], "samples": 1, "versions": ["1", "2"]}',
    ],
)
def test_a_damaged_record_is_one_line(tmp_path: Path, line: str):
    (tmp_path / "arrivals.jsonl").write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"arrivals\.jsonl: line 1 is no record"):
        Arrivals(tmp_path / "arrivals.jsonl")
