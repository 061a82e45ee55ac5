import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from heterps.data import click_model, session_model, synthetic
from heterps.data.click_model import ClickModel
from heterps.data.dataset import Dataset
from heterps.data.synthetic import SynthSpec, synthesise
from heterps.errors import InputError
from heterps.job.data import DataSpec


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in (click_model, session_model, synthetic):
        monkeypatch.setattr(module, "BLOCK_ROWS", 2048)


def spec(**changes) -> SynthSpec:
    return SynthSpec(**{"rows": 5000, "validation_rows": 1500, "slots": 4, "ids": 500, **changes})


def table(out: Path, part: str = "train") -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted((out / part).glob("*")))


def test_rows_do_not_depend_on_the_number_of_files(tmp_path: Path):
    tables = []
    for files in (1, 2, 7):
        synthesise(spec(files=files), tmp_path / str(files))
        assert len(list((tmp_path / str(files) / "train").iterdir())) == files
        tables.append(table(tmp_path / str(files)))
    assert tables[0].num_rows == 5000
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


def test_files_are_cut_between_blocks_where_there_are_enough(tmp_path: Path):
    synthesise(spec(rows=3 * 2048 + 5, files=3), tmp_path)
    groups = [pq.read_metadata(path) for path in sorted((tmp_path / "train").iterdir())]
    assert [meta.num_rows for meta in groups] == [2048, 2048, 2053]


def test_more_rows_begin_with_the_same_and_validation_stays(tmp_path: Path):
    synthesise(spec(), tmp_path / "a")
    synthesise(spec(rows=9000), tmp_path / "b")
    assert table(tmp_path / "a").equals(table(tmp_path / "b").slice(0, 5000))
    assert table(tmp_path / "a", "validation").equals(table(tmp_path / "b", "validation"))
    synthesise(spec(seed=1), tmp_path / "c")
    assert not table(tmp_path / "a").equals(table(tmp_path / "c"))


def test_columns_are_those_of_criteo(tmp_path: Path):
    synthesise(spec(slots=26), tmp_path)
    schema = table(tmp_path).schema
    assert schema.names == [
        "label",
        *(f"I{i}" for i in range(1, 14)),
        *(f"C{i}" for i in range(1, 27)),
    ]
    assert (schema.field("I1").type, schema.field("C26").type) == (pa.float32(), pa.int64())
    metadata = pq.read_metadata(tmp_path / "train" / "part-00000.parquet")
    columns = [metadata.row_group(0).column(i) for i in (0, 1, 14)]
    assert {column.compression for column in columns} == {"SNAPPY"}
    # what is quickest to read
    encodings = [set(column.encodings) - {"RLE"} for column in columns]
    assert encodings == [{"DELTA_BINARY_PACKED"}, {"PLAIN"}, {"DELTA_BINARY_PACKED"}]


def test_the_ceiling_is_that_of_the_true_model(tmp_path: Path):
    summary = synthesise(spec(rows=20_000, validation_rows=20_000, slots=8), tmp_path)
    assert 0.22 < summary["train"]["positive_share"] < 0.28
    assert 0.7 < summary["ceiling"]["auc"] < 0.9
    assert summary["ceiling"]["logloss"] < 0.55
    assert json.loads((tmp_path / "synthetic.json").read_text()) | {"reused": False} == summary


def test_labels_that_are_all_equal_have_no_auc(tmp_path: Path):
    summary = synthesise(spec(validation_rows=1), tmp_path)
    assert summary["ceiling"]["auc"] is None
    json.loads((tmp_path / "synthetic.json").read_text(), parse_constant=pytest.fail)


def test_missing_values_are_nulls(tmp_path: Path):
    synthesise(spec(missing=0.3), tmp_path)
    found = table(tmp_path)
    shares = [found[name].null_count / 5000 for name in ("I1", "I13", "C1", "C4")]
    assert all(0.26 < share < 0.34 for share in shares)
    assert found["label"].null_count == 0


@pytest.mark.parametrize("kind", ["match", "next"])
def test_sessions_have_users_histories_and_items(tmp_path: Path, kind: str):
    summary = synthesise(spec(kind=kind), tmp_path)
    found = table(tmp_path)
    assert found.schema.names == ["label", "user", "history", "item"]
    lengths = [len(past) for past in found["history"].to_pylist()]
    assert (min(lengths), max(lengths)) == (0, 15)
    assert found["item"].to_numpy().max() < 500
    if kind == "next":
        assert set(found["label"].to_pylist()) == {1}
        assert 1 < summary["ceiling"]["nats_per_item"] < np.log(500)
    else:
        assert summary["ceiling"]["auc"] > 0.7


@pytest.mark.parametrize("kind", synthetic.KINDS)
def test_the_section_reads_what_was_written(tmp_path: Path, kind: str):
    synthesise(spec(kind=kind), tmp_path)
    section = yaml.safe_load((tmp_path / "data.yaml").read_text())["data"]
    data = DataSpec.parse({**section, "transform": "none"}, "data")
    assert Dataset.open(data, base=str(tmp_path), binary=True).samples == 5000
    columns = Dataset.open(data, "validation", str(tmp_path)).read(0)
    if kind != "clicks":  # a history of items has the ids of items
        assert np.isin(columns.bags["history"].ids, columns.ids[1]).mean() > 0.5


def test_the_same_data_set_is_left_as_it_is_and_another_needs_force(tmp_path: Path):
    assert not synthesise(spec(), tmp_path)["reused"]
    before = (tmp_path / "train" / "part-00000.parquet").stat().st_mtime_ns
    assert synthesise(spec(), tmp_path)["reused"]
    assert (tmp_path / "train" / "part-00000.parquet").stat().st_mtime_ns == before
    with pytest.raises(InputError, match="holds another data set; give another folder, or --force"):
        synthesise(spec(seed=3), tmp_path)
    synthesise(spec(seed=3, files=2), tmp_path, force=True)
    synthesise(spec(seed=3), tmp_path, force=True)
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["part-00000.parquet"]


def test_an_interrupted_run_leaves_no_half_file_and_counts_as_unfinished(tmp_path: Path):
    def stop(done: int, _total: int) -> None:
        if done > 4000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesise(spec(files=2), tmp_path, stop)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["part-00000.parquet"]
    assert not synthesise(spec(files=2), tmp_path, force=True)["reused"]


def test_progress_reaches_the_total(tmp_path: Path):
    seen = []
    synthesise(spec(), tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (6500, 6500)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "clickz"}, "unknown kind 'clickz' (known: clicks, match, next); did you mean"),
        ({"rows": 0}, "rows: expected 1 or more, got 0"),
        ({"files": 6000}, "files: 6000 is more than there are rows (5000)"),
        ({"missing": 1.0}, "missing: expected a share in [0, 1), got 1"),
    ],
)
def test_a_bad_setting_is_named(changes, message: str):
    with pytest.raises(InputError) as caught:
        spec(**changes)
    assert message in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "train").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        synthesise(spec(), tmp_path)


def test_without_dense_columns_or_without_slots():
    assert ClickModel(slots=2, ids=10, dense=0).block(0).table.column_names == ["label", "C1", "C2"]
    assert ClickModel(slots=0, dense=1).block(0).table.column_names == ["label", "I1"]
