from datetime import date, datetime, time
from pathlib import Path

import pytest

from heterps.data import survey as module
from heterps.data.survey import survey
from heterps.errors import InputError
from heterps.testing.samples import criteo_line


def columns(found) -> dict:
    return {column["name"]: column for column in found.columns}


def test_a_small_file_by_hand(parquet):
    path = parquet(
        "a.parquet",
        {
            "click": [1, 0, 0, 0, 1],
            "I1": [0.5, None, 2.5, 1.0, 0.0],
            "C1": [7, 7, 7, None, 8],
            "C2": ["a", "b", "a", "a", "a"],
            "tags": [[1, 2], [], None, [1], [1]],
        },
        2,
    )
    found = survey([str(path)])
    assert (found.files, found.rows, found.row_groups, found.largest_row_group) == (1, 5, 3, 2)
    assert (found.label, found.label_mean) == ("click", 0.4)
    by_name = columns(found)
    assert by_name["I1"] == {
        "name": "I1",
        "type": "double",
        "role": "number",
        "missing_share": 0.2,
        "min": 0.0,
        "max": 2.5,
        "mean": 1.0,
    }
    c1 = by_name["C1"]
    assert (c1["role"], c1["missing_share"], c1["distinct_ids"]) == ("category", 0.2, 2)
    assert c1["top_id_share"] == 0.75
    assert c1["ids_by_count"]["1"] == 1
    assert c1["ids_by_count"]["2-9"] == 1
    assert by_name["C2"]["distinct_ids"] == 2
    assert by_name["tags"]["role"] == "list"
    assert by_name["tags"]["mean_length"] == 0.8
    assert by_name["tags"]["distinct_ids"] == 2


def test_ids_are_counted_across_files_and_formats(parquet, tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text("".join(criteo_line(int(i % 4 == 0), "1", f"{i % 10}") for i in range(200)))
    found = survey([str(path)])
    assert found.label_mean == 0.25
    assert columns(found)["C1"]["ids_by_count"]["10-99"] == 10
    assert columns(found)["C2"]["ids_by_count"]["100-999"] == 1
    assert columns(found)["I1"]["mean"] == 1


def test_too_many_ids_end_the_count_of_that_column(parquet, monkeypatch):
    monkeypatch.setattr(module, "MOST_IDS", 100)
    path = parquet("a.parquet", {"label": [0] * 500, "C1": range(500), "C2": [1] * 500}, 50)
    by_name = columns(survey([str(path)]))
    assert not by_name["C1"]["complete"]
    assert by_name["C1"]["distinct_ids"] >= 100
    assert by_name["C2"]["complete"]
    assert by_name["C2"]["distinct_ids"] == 1


def test_a_label_by_name_and_none_at_all(parquet):
    path = parquet("a.parquet", {"y": [1, 1], "C1": [1, 2]})
    assert survey([str(path)]).label is None
    assert survey([str(path)], "y").label_mean == 1
    with pytest.raises(InputError, match=r"--label: unknown column of .*a\.parquet 'z'"):
        survey([str(path)], "z")


def test_missing_labels_are_counted(parquet):
    path = parquet("a.parquet", {"label": [1, None, 0, None], "C1": [1, 2, 3, 4]}, 2)
    found = survey([str(path)])
    assert (found.label_mean, found.label_missing) == (0.5, 2)


@pytest.mark.parametrize(
    "values",
    [
        [date(2026, 1, 1), None],
        [datetime(2026, 1, 1), None],
        [time(1), None],
        [{"a": 1}, None],
        [[1.5], None],
        [[date(2026, 1, 1)], None],
        [[[1]], None],
    ],
)
def test_what_is_neither_a_number_nor_a_category_is_listed(parquet, values):
    found = survey([str(parquet("a.parquet", {"label": [0, 1], "x": values}))])
    x = columns(found)["x"]
    assert (x["role"], x["missing_share"]) == ("unusable", 0.5)
    assert found.label_mean == 0.5


def test_a_label_of_texts_has_no_mean(parquet):
    path = parquet("a.parquet", {"label": ["no", "yes"], "C1": [1, 2]})
    found = survey([str(path)])
    assert (found.label_mean, columns(found)["label"]["role"]) == (None, "category")


@pytest.mark.parametrize(
    ("one", "other", "role", "kinds"),
    [
        ([1], [2.5], "number", "int64, double"),
        ([1], [None], "category", "int64, null"),
        (["a"], [None], "category", "string, null"),
        ([1], ["a"], "unusable", "int64, string"),
        ([[1]], [["a"]], "unusable", "list<element: int64>, list<element: string>"),
        ([[1]], [[]], "list", "list<element: int64>, list<element: null>"),
        ([1.5], ["a"], "unusable", "double, string"),
        ([date(2026, 1, 1)], [1], "unusable", "date32[day], int64"),
    ],
)
def test_a_column_is_what_it_is_in_all_files(parquet, one, other, role: str, kinds: str):
    parquet("d/a.parquet", {"label": [1], "x": one})
    path = parquet("d/b.parquet", {"label": [1], "x": other})
    x = columns(survey([str(path.parent)]))["x"]
    assert (x["role"], x["type"]) == (role, kinds)


def test_files_with_other_columns_are_refused(parquet):
    parquet("d/a.parquet", {"label": [1], "C1": [1]})
    path = parquet("d/b.parquet", {"label": [1], "C2": [1]})
    with pytest.raises(InputError, match=r"b\.parquet: its columns are not those of .*a\.parquet"):
        survey([str(path.parent)])


def test_a_file_without_rows(parquet):
    path = parquet("a.parquet", {"label": [], "C1": []})
    found = survey([str(path)])
    assert (found.rows, found.label_mean) == (0, None)
