"""Standard output that goes away or is full."""

import os
import subprocess
import sys

import pytest

from heterps.events import read_events
from heterps.testing.runs import document


def heterps(*args, out):
    command = [sys.executable, "-m", "heterps", *args]
    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    os.close(out)
    return done.returncode, done.stderr


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def gone():
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.fixture
def full():
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gone", "full"])
def test_training_goes_on_without_it(request, write, tmp_path, kind):
    job, run = write(document(tmp_path, "two_emb"), "job.json"), tmp_path / "run"
    out = request.getfixturevalue(kind)
    assert heterps("train", job, "--out", str(run), out=out) == (0, "")
    assert [event["kind"] for event in read_events(run / "events.jsonl")][-1] == "ended"


@pytest.mark.parametrize("args", [["--help"], ["runs"]], ids=["at once", "at the end"])
def test_other_commands_end_without_a_word(gone, args):
    assert heterps(*args, out=gone) == (141, "")


def test_what_has_no_room_is_told(full, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    said = "heterps: standard output: cannot be written (No space left on device)\n"
    assert heterps("runs", out=full) == (1, said)
