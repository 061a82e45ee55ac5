import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from heterps.data.convert import convert
from heterps.data.dataset import Dataset
from heterps.errors import InputError
from heterps.job.data import DataSpec
from heterps.testing.samples import criteo_line


@pytest.fixture
def tsv(tmp_path: Path) -> Path:
    path = tmp_path / "day_0.tsv"
    path.write_text("".join(criteo_line(i % 2, str(i), f"{i % 7:x}" * (i % 3)) for i in range(50)))
    return path


def spec(path: Path) -> DataSpec:
    names = {"dense": ["I1", "I2"], "sparse": ["C1", "C26"]}
    return DataSpec.parse({"train": str(path), "transform": "none", **names})


def test_converted_files_give_the_same_samples_and_ids(tsv: Path, tmp_path: Path):
    (path,) = convert([str(tsv)], tmp_path / "out", row_group_rows=20)
    assert path == tmp_path / "out" / "day_0.parquet"
    assert [pq.read_metadata(path).row_group(i).num_rows for i in range(3)] == [20, 20, 10]
    before = Dataset.open(spec(tsv)).read(0)
    after = [Dataset.open(spec(path)).read(i) for i in range(3)]
    for name in ("dense", "label"):
        found = [row for columns in after for row in getattr(columns, name).tolist()]
        assert found == getattr(before, name).tolist()
    ids = [[id for columns in after for id in columns.ids[slot].tolist()] for slot in (0, 1)]
    assert ids == before.ids.tolist()


def test_compressed_and_large_row_groups_are_converted_too(tsv: Path, tmp_path: Path):
    packed = tmp_path / "day_1.txt.gz"
    packed.write_bytes(gzip.compress(tsv.read_bytes()))
    first = convert([str(packed), str(tsv)], tmp_path / "out")
    assert [path.name for path in first] == ["day_0.parquet", "day_1.parquet"]
    (again,) = convert([str(first[0])], tmp_path / "small", row_group_rows=7)
    assert pq.read_metadata(again).num_row_groups == 8
    assert pq.read_table(again).equals(pq.read_table(first[1]))


def test_lists_and_texts_survive(parquet, tmp_path: Path):
    columns = {
        "tags": [[1, 2], [], None],
        "words": [["a"], [None], ["b", "a"]],
        "C1": ["x", None, ""],
    }
    path = parquet("a.parquet", columns)
    (copy,) = convert([str(path)], tmp_path / "out")
    assert pq.read_table(copy).to_pydict() == columns
    encodings = [pq.read_metadata(copy).row_group(0).column(i).encodings for i in range(3)]
    assert "DELTA_BINARY_PACKED" in encodings[0]
    assert "RLE_DICTIONARY" in encodings[1]
    assert "RLE_DICTIONARY" in encodings[2]


def test_what_is_there_stays_unless_forced(tsv: Path, tmp_path: Path):
    convert([str(tsv)], tmp_path / "out")
    with pytest.raises(InputError, match=r"day_0\.parquet: is there already; give another folder"):
        convert([str(tsv)], tmp_path / "out")
    convert([str(tsv)], tmp_path / "out", force=True)
    with pytest.raises(InputError, match="is a source itself"):
        convert([f"{tmp_path}/out/day_0.parquet"], tmp_path / "out", force=True)


def test_two_sources_of_one_name_are_refused(tsv: Path, tmp_path: Path):
    (tmp_path / "day_0.txt").write_bytes(tsv.read_bytes())
    with pytest.raises(InputError, match=r"two sources would become day_0\.parquet"):
        convert([f"{tmp_path}/day_0.*"], tmp_path / "out")


def test_a_bad_line_leaves_no_file(tsv: Path, tmp_path: Path):
    tsv.write_text(tsv.read_text() + "1\t2\n")
    with pytest.raises(InputError, match=r"day_0\.tsv: lines 1 to 51 cannot be read"):
        convert([str(tsv)], tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
