import json
import os
import signal
import subprocess
import sys
import time

import pytest

from heterps.processes import end_held
from heterps.runtime.engines.local import LocalEngine
from heterps.testing.engines import CHECKS, all_ended, lives, spec, told
from heterps.wire.segments import PREFIX, segment_folder

pytestmark = pytest.mark.slow

HOLDER = """
import sys, threading, time
from pathlib import Path
from heterps.runtime.engines.local import LocalEngine
from heterps.testing.engines import spec, told

folder = Path(sys.argv[1])

def hold():
    engine = LocalEngine(folder)
    for number, verb in enumerate(("sleep", "have a child")):
        told(engine.start(spec(f"p{number}", verb, folder / str(number))), folder / str(number))
    (folder / "ready").touch()
    time.sleep(600)

if sys.argv[2] == "main":
    hold()
else:
    threading.Thread(target=hold).start()
"""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_local_engine_conforms(check, tmp_path):
    check(LocalEngine, tmp_path)


def hold(folder, thread="main"):
    """A process that has started others, and theirs."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), thread])
    deadline = time.monotonic() + 60
    while not (folder / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holder, [pid for name in "01" for pid in json.loads((folder / name).read_text())]


@pytest.mark.parametrize("thread", ["main", "other"])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path, thread):
    holder, pids = hold(tmp_path, thread)
    holder.kill()
    holder.wait()
    assert all_ended(pids[:2]), "the processes themselves"
    assert all_ended(pids[2:]), "and theirs"


def test_what_is_held_when_its_parent_is_killed_is_ended_by_the_next(tmp_path):
    holder, (held, *others) = hold(tmp_path)
    os.kill(held, signal.SIGSTOP)
    end_held(tmp_path / "0")
    assert lives(held), "its parent is there"
    holder.kill()
    holder.wait()
    assert all_ended(others)
    end_held(tmp_path / "1")
    assert lives(held), "it is not of that run"
    end_held(tmp_path / "0")
    assert all_ended([held])


def test_output_is_kept_over_starts_and_last_words_are_of_the_last(tmp_path):
    with LocalEngine(tmp_path) as engine:
        for text in ("first", "second", ""):
            handle = engine.start(spec("one", "exit", 0, text))
            handle.child.wait(30)
        assert handle.last_words(5) == "before"
    said = (tmp_path / "logs" / "one.log").read_text().split()
    assert said == ["before", "first", "before", "second", "before"]


def test_a_segment_of_a_killed_process_is_removed(tmp_path):
    with LocalEngine(tmp_path) as engine:
        handle = engine.start(spec("one", "sleep", tmp_path / "pid"))
        told(handle, tmp_path / "pid")
        segment = segment_folder() / f"{PREFIX}{handle.pid}-0"
        segment.touch()
        os.kill(handle.pid, signal.SIGKILL)
        handle.child.wait(30)
        assert handle.poll() == -signal.SIGKILL
        assert not segment.exists()
