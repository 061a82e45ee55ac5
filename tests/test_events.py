import json
import math
import subprocess
import sys

from heterps.events import EventLog, read_events


def test_events_are_lines_of_json_with_their_time(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.write("step", batch=3, loss=math.nan, busy=(0.5, math.inf), file=path)
        (line,) = path.read_text().splitlines()  # before the log is closed
    event = json.loads(line)
    assert event.pop("time") > 1e9
    expected = {"kind": "step", "batch": 3, "loss": None, "busy": [0.5, None]}
    assert event == expected | {"file": str(path)}


def test_a_torn_line_is_left_out_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.write("a")
    with path.open("a") as file:
        file.write('{"kind": "b", "los')
    assert [event["kind"] for event in read_events(path)] == ["a"]
    with EventLog(path) as log:
        log.write("c")
    assert [event["kind"] for event in read_events(path)] == ["a", "c"]


def test_a_file_that_is_not_there_has_no_events(tmp_path):
    assert list(read_events(tmp_path / "none.jsonl")) == []


def test_events_wait_for_room_on_the_disk(tmp_path):
    """A full disk is no reason to stop a run, and what happened meanwhile is told later."""
    script = f"""
import resource
from heterps.events import EventLog
with EventLog({str(tmp_path / "events.jsonl")!r}) as log:
    log.write("a")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    log.write("b", text=100 * "x")
    log.write("c")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    log.write("d")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    kinds = [event["kind"] for event in read_events(tmp_path / "events.jsonl")]
    assert kinds == ["a", "b", "c", "d"]
