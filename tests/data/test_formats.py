import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from heterps.data import lines as lines_module
from heterps.data.criteo import CriteoGroups
from heterps.data.dataset import grouped
from heterps.data.parquet import ParquetGroups
from heterps.data.source import find_files
from heterps.errors import InputError
from heterps.testing.samples import criteo_line


def opened(path: Path):
    return grouped(find_files([str(path)])[0])


def criteo(path: Path, block_rows: int = 4) -> CriteoGroups:
    return CriteoGroups(find_files([str(path)])[0], block_rows)


# -- Parquet


def test_parquet_gives_its_row_groups_and_the_columns_asked_for(parquet):
    file = opened(parquet("a.parquet", {"x": range(10), "t": list("abcdefghij")}, 4))
    assert isinstance(file, ParquetGroups)
    assert file.sizes == [4, 4, 2]
    table = file.read(1, ["t"])
    assert table.column_names == ["t"]
    assert pa.types.is_dictionary(table["t"].type)
    assert table["t"].to_pylist() == list("efgh")


@pytest.mark.parametrize("kept", [0, 3, 200, -1])
def test_a_truncated_parquet_file_is_named(parquet, kept: int):
    path = parquet("a.parquet", {"x": range(1000)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError) as caught:
        opened(path)
    assert str(caught.value).startswith(f"{path}: is not whole Parquet (")
    assert "\n" not in str(caught.value)


def test_a_parquet_file_that_is_gone_is_named(parquet):
    path = parquet("a.parquet", {"x": range(10)})
    (file,) = find_files([str(path)])
    path.unlink()
    with pytest.raises(InputError, match=r"a\.parquet: cannot be read \(.*No such file"):
        grouped(file)


def test_a_damaged_row_group_is_named(parquet):
    path = parquet("a.parquet", {"x": np.random.default_rng(0).integers(0, 1 << 60, 10_000)}, 9999)
    file = opened(path)
    whole = path.read_bytes()
    path.write_bytes(b"\xff" * 50_000 + whole[50_000:])
    with pytest.raises(InputError) as caught:
        file.read(0, ["x"])
    assert str(caught.value).startswith(f"{path}: row group 0 cannot be read (")


def test_a_file_that_was_replaced_while_it_is_read_is_said_to_be_perhaps(parquet):
    drawn = np.random.default_rng(0).integers(0, 1 << 60, 10_000)
    file = opened(parquet("a.parquet", {"x": drawn}, 9999))
    parquet("a.parquet", {"y": [f"{number}" for number in drawn], "x": drawn}, 9999)
    with pytest.raises(InputError, match=r"is the file damaged, or has it been replaced\?$"):
        file.read(0, ["x"])


def test_an_ending_that_tells_no_format_is_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(InputError, match=r"a\.csv: its ending tells no format"):
        opened(tmp_path / "a.csv")


# -- Criteo


def lines(count: int) -> list[str]:
    return [criteo_line(i % 2, str(i), f"{i:08x}") for i in range(count)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("ended", [True, False])
def test_blocks_of_lines_act_as_row_groups(tmp_path: Path, packed: bool, count: int, ended: bool):
    text = "".join(lines(count)).encode()
    text = text if ended else text[:-1]
    path = tmp_path / ("a.tsv.gz" if packed else "a.tsv")
    path.write_bytes(gzip.compress(text) if packed else text)
    file = criteo(path)
    assert sum(file.sizes) == count
    assert set(file.sizes[:-1]) <= {4}
    # in any order
    tables = {i: file.read(i, ["label", "I1", "C1"]) for i in reversed(range(len(file.sizes)))}
    read = [row for i in range(len(tables)) for row in tables[i].to_pylist()]
    assert read == [{"label": i % 2, "I1": i, "C1": f"{i:08x}"} for i in range(count)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 500, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\r", "\n\n\n"])
def test_empty_lines_are_skipped(
    tmp_path: Path, monkeypatch, chunk: int, packed: bool, end: str, last: str
):
    # as many empty lines before each line as its digit, none and several around the blocks
    text = "".join(
        end * int(empty) + line.replace("\n", end)
        for empty, line in zip("210030210", lines(9), strict=True)
    )
    text = (text if last else text.rstrip("\r\n")) + last
    path = tmp_path / ("a.tsv.gz" if packed else "a.tsv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    monkeypatch.setattr(lines_module, "_CHUNK_BYTES", chunk * 4 if packed else chunk)
    file = criteo(path, 3)
    assert file.sizes == [3, 3, 3]
    read = [file.read(i, ["label", "I1"]).to_pylist() for i in range(3)]
    assert [row for rows in read for row in rows] == [{"label": i % 2, "I1": i} for i in range(9)]


def test_lines_are_counted_with_empty_ones(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(["", *lines(4)]) + "\n\n" + "1\t2\n")
    with pytest.raises(InputError, match=r"lines 9 to 11 cannot be read \(CSV parse error"):
        criteo(path).read(1, ["I1"])


@pytest.mark.parametrize("text", ["\n", "\r\n\r\n", "\r", "\n\n\n\n\n\n"])
def test_a_file_of_empty_lines_has_no_row_groups(tmp_path: Path, text: str):
    (tmp_path / "a.tsv").write_text(text)
    assert list(criteo(tmp_path / "a.tsv").sizes) == []


@pytest.mark.parametrize("packed", [False, True])
def test_whoever_opens_a_large_file_hears_of_every_piece(tmp_path: Path, packed: bool):
    rng = np.random.default_rng(0)
    text = b"".join(criteo_line(0, "1", rng.bytes(8000).hex()).encode() for _ in range(250))
    path = tmp_path / ("a.tsv.gz" if packed else "a.tsv")
    path.write_bytes(gzip.compress(text) if packed else text)
    heard: list[None] = []
    (file,) = find_files([str(path)])
    grouped(file, lambda: heard.append(None))
    assert len(heard) >= 4


def test_a_large_compressed_file_of_several_members_is_read_from_the_middle(tmp_path: Path):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 1 << 32, 12_000)
    text = [criteo_line(0, str(i), f"{n:08x}").encode() for i, n in enumerate(numbers.tolist())]
    path = tmp_path / "a.txt.gz"
    path.write_bytes(
        b"".join(gzip.compress(b"".join(text[a : a + 3000])) for a in range(0, 12_000, 3000))
    )
    file = criteo(path, 700)
    assert sum(file.sizes) == 12_000
    for index in (11, 3, 17, 0, 4):
        first = index * 700
        read = file.read(index, ["I1"])["I1"].to_pylist()
        assert read == list(range(first, min(first + 700, 12_000)))


def test_empty_fields_are_missing(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text(criteo_line(1, "", "") + criteo_line(0, "-2", "68fd1e64"))
    table = criteo(path).read(0, ["label", "I1", "I13", "C1", "C26"])
    assert table.to_pylist() == [
        {"label": 1, "I1": None, "I13": 13, "C1": None, "C26": "0000001a"},
        {"label": 0, "I1": -2, "I13": 13, "C1": "68fd1e64", "C26": "0000001a"},
    ]


def test_a_test_set_has_no_label(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text(criteo_line(1).partition("\t")[2])
    file = criteo(path)
    assert "label" not in file.schema.names
    assert file.read(0, ["I1"]).to_pylist() == [{"I1": 1}]


def test_another_number_of_fields_is_refused(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text("1\t2\t3\n")
    with pytest.raises(InputError) as caught:
        criteo(path)
    assert str(caught.value).startswith(f"{path}: expected 40 fields a line with tabs")


def test_a_bad_line_is_named_with_its_block(tmp_path: Path):
    path = tmp_path / "a.tsv"
    good = lines(9)
    path.write_text("".join([*good[:6], "1\t2\n", *good[6:]]))
    file = criteo(path)
    assert file.read(0, ["I1"]).num_rows == 4
    with pytest.raises(InputError) as caught:
        file.read(1, ["I1"])
    assert str(caught.value).startswith(f"{path}: lines 5 to 8 cannot be read (CSV parse error")


def test_a_number_that_is_none_is_named(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text(criteo_line(1, "many"))
    with pytest.raises(InputError, match=r"a\.tsv: lines 1 to 1 cannot be read .*many"):
        criteo(path).read(0, ["I1"])


def test_a_truncated_compressed_file_is_named(tmp_path: Path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress("".join(lines(100)).encode())[:-200])
    with pytest.raises(InputError, match=r"a\.tsv\.gz: cannot be read \(the compressed file ends"):
        criteo(path)


def test_an_empty_file_has_no_row_groups(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("")
    assert list(criteo(tmp_path / "a.tsv").sizes) == []
