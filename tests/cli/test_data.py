import json
import os
import pty
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heterps.testing.samples import criteo_line

SYNTH = ("--rows", "3000", "--slots", "3", "--dense", "2", "--ids", "500")


@pytest.fixture
def clicks(heterps, tmp_path: Path) -> Path:
    assert heterps("data", "synth", str(tmp_path / "d"), *SYNTH, "--files", "2").code == 0
    return tmp_path / "d"


@pytest.fixture
def tsv(tmp_path: Path) -> Path:
    path = tmp_path / "day_0.tsv"
    path.write_text("".join(criteo_line(i % 4 // 3, str(i)) for i in range(100)))
    return path


# -- synth


def test_synth_prints_the_ceiling_and_where_to_go_on(heterps, tmp_path: Path):
    result = heterps("data", "synth", str(tmp_path / "d"), *SYNTH)
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[0].startswith(f"{tmp_path}/d: 3,000 rows to train on, 300 to validate on (")
    assert lines[1].startswith("positive  2")
    assert lines[2].startswith("ceiling   AUC 0.")
    assert "log-loss 0." in lines[2]
    assert f"heterps data inspect {tmp_path}/d/train" in lines[3]


def test_a_second_synth_reuses_and_another_needs_force(heterps, clicks: Path):
    again = heterps("data", "synth", str(clicks), *SYNTH, "--files", "2")
    assert "(was there already)" in again.out
    other = heterps("data", "synth", str(clicks), *SYNTH, "--seed", "4")
    assert (other.code, other.out) == (1, "")
    assert other.err == (
        f"heterps: {clicks}: holds another data set; give another folder, or --force\n"
    )
    assert heterps("data", "synth", str(clicks), *SYNTH, "--seed", "4", "--force").code == 0


def test_synth_answers_in_json(heterps, tmp_path: Path):
    args = ("--kind", "next", "--rows", "500", "--ids", "300", "--json")
    (line,) = heterps("data", "synth", str(tmp_path / "d"), *args).lines
    assert line["validation"]["rows"] == 50
    assert line["ceiling"]["nats_per_item"] > 0


def test_an_unknown_kind_names_the_nearest(heterps, tmp_path: Path):
    result = heterps("data", "synth", str(tmp_path), "--rows", "10", "--kind", "macth")
    assert result.code == 1
    assert "did you mean 'match'?" in result.err


# -- convert


def test_convert_prints_what_it_wrote(heterps, tsv: Path, tmp_path: Path):
    result = heterps("data", "convert", str(tsv), str(tmp_path / "out"), "--row-group-rows", "30")
    assert (result.code, result.err) == (0, "")
    assert result.out == f"{tmp_path}/out/day_0.parquet\n"
    metadata = pq.read_metadata(tmp_path / "out" / "day_0.parquet")
    assert (metadata.num_rows, metadata.num_row_groups) == (100, 4)
    (line,) = heterps("data", "convert", str(tsv), str(tmp_path / "out"), "--force", "--json").lines
    assert line == {"files": [f"{tmp_path}/out/day_0.parquet"]}


@pytest.mark.parametrize(
    "command",
    [
        ("data", "synth", "s3://b/d", "--rows", "9"),
        ("data", "convert", "day.tsv", "hdfs://h:8020/d"),
        ("init", "webhdfs://h/d"),
        ("train", "job.yaml", "--out", "file:///d"),
    ],
)
def test_a_url_for_a_folder_that_is_made_on_a_disk_is_wrong_usage(
    heterps, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    result = heterps(*command)
    assert result.code == 2
    assert "looks like a URL: expected a folder on a disk" in " ".join(result.err.split())
    assert not list(tmp_path.iterdir())


def test_convert_without_a_folder_is_wrong_usage(heterps, tsv: Path):
    result = heterps("data", "convert", str(tsv))
    assert result.code == 2
    assert "give the files, then the folder to write to" in result.err


def test_a_source_that_is_not_there_is_one_line(heterps, tmp_path: Path):
    result = heterps("data", "convert", f"{tmp_path}/none.tsv", str(tmp_path / "out"))
    assert result.code == 1
    assert result.err.startswith(f"heterps: IN: nothing matches '{tmp_path}/none.tsv'")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_ctrl_c_leaves_no_half_file(tmp_path: Path):
    block = "".join(criteo_line(i % 2, str(i), f"{i:08x}") for i in range(20_000))
    (tmp_path / "big.tsv").write_text(block * 25)
    command = [sys.executable, "-m", "heterps", "data", "convert", "big.tsv", "out"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell that runs the tests in the background has SIGINT ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/.*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert b"Traceback" not in error
    assert list((tmp_path / "out").iterdir()) == []


# -- inspect


def test_inspect_shows_counts_ranges_and_ids(heterps, clicks: Path):
    result = heterps("data", "inspect", str(clicks / "train"))
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[0].startswith("3,000 rows in 2 files, 0.")
    assert lines[1] == "row groups  2, the largest of 1,500 rows"
    assert lines[2].startswith("label       label, mean 0.2")
    table = {line.split()[0]: line.split() for line in lines[4:] if line}
    assert table["I1"][1:4] == ["float", "0", "%"]
    assert table["C1"][:2] == ["C1", "int64"]
    assert table["slot"][-7:] == ["1", "2-9", "10-99", "100-999", "1k-9k", "10k-99k", "100k+"]


def test_inspect_answers_in_json(heterps, tsv: Path):
    (line,) = heterps("data", "inspect", str(tsv), "--json").lines
    assert (line["rows"], line["label_mean"]) == (100, 0.25)
    assert [column["name"] for column in line["columns"]][:2] == ["label", "I1"]


def test_inspect_says_how_many_labels_are_missing(heterps, tsv: Path):
    tsv.write_text(tsv.read_text() + criteo_line(1).replace("1", "", 1) + "\n")
    lines = heterps("data", "inspect", str(tsv)).out.splitlines()
    assert lines[0].startswith("101 rows in 1 file")
    assert lines[2] == "label       label, mean 0.2500, 1 missing, which training refuses"


def test_a_truncated_file_is_one_line(heterps, clicks: Path):
    path = clicks / "train" / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    result = heterps("data", "inspect", str(clicks / "train"))
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"heterps: {path}: is not whole Parquet (")
    assert result.err.count("\n") == 1


def test_inspect_lists_what_no_model_can_use(heterps, tmp_path: Path):
    table = pa.table({"label": [0, 1], "day": [date(2026, 1, 1), None]})
    pq.write_table(table, tmp_path / "a.parquet")
    result = heterps("data", "inspect", f"{tmp_path}/a.parquet")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1].split() == ["day", "date32[day]", "50", "%"]


def test_inspect_of_nothing_names_its_argument_and_where_it_looked(
    heterps, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert heterps("data", "inspect", "nope").err == (
        f"heterps: PATH: nothing matches 'nope': check the path, which starts from {tmp_path}\n"
    )


# -- help and terminals


@pytest.mark.parametrize("command", ["synth", "convert", "inspect"])
def test_the_help_teaches_by_examples(heterps, command: str):
    result = heterps("data", command, "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert f"heterps data {command}" in result.out


@pytest.mark.slow
def test_a_terminal_gets_a_bar_on_standard_error(tmp_path: Path):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "heterps", "data", "synth", str(tmp_path / "d")]
    with subprocess.Popen(
        [*command, "--rows", "400000", "--json"], stdout=subprocess.PIPE, stderr=follower
    ) as process:
        os.close(follower)
        shown = b"".join(iter(lambda: read_terminal(leader), b""))
        out = process.stdout.read()
    os.close(leader)
    assert process.returncode == 0
    assert json.loads(out)["train"]["rows"] == 400_000
    assert "writing" in shown.decode()
    assert "rows," in shown.decode()


def read_terminal(leader: int) -> bytes:
    try:
        return os.read(leader, 4096)
    except OSError:  # the other end is closed
        return b""
