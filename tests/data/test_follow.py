from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.data.follow import Arrivals, next_arrival
from heterps.errors import InputError


def test_files_with_a_marker_come_by_name_and_others_wait():
    names = ["b.parquet", "b.parquet.done", "a.parquet", "c.parquet", "a.parquet.done", "x.done"]
    assert next_arrival(names, []) == ("a.parquet", "b.parquet")
    assert next_arrival(names, ["a.parquet"]) == ("b.parquet",)


def test_hidden_and_other_files_are_no_data():
    names = ["_a.parquet", "_a.parquet.done", ".b.tsv", ".b.tsv.done", "readme", "readme.done"]
    assert next_arrival(names, []) == ()


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
    assert arrivals.record(["b.tsv", "b.tsv.done"]).names == ("b.tsv",)
    assert arrivals.record(["b.tsv", "b.tsv.done", "a.tsv"]) is None
    second = arrivals.record(["b.tsv", "b.tsv.done", "a.tsv", "a.tsv.done"])
    again = Arrivals(path)
    assert len(again) == 2
    assert again[1] == second
    assert again.taken == ["b.tsv", "a.tsv"]


def test_a_damaged_record_is_one_line(tmp_path: Path):
    (tmp_path / "arrivals.jsonl").write_text('{"arrival": 1, "files": []}\n')
    with pytest.raises(InputError, match=r"arrivals\.jsonl: line 1 is no record"):
        Arrivals(tmp_path / "arrivals.jsonl")
