import json
import os
import signal
import subprocess
import sys
import time

import pytest

from heterps.runtime.engines.local import LocalEngine
from heterps.testing.engines import CHECKS, all_ended, spec, told
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


@pytest.mark.parametrize("thread", ["main", "other"])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path, thread):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path), thread])
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [pid for name in "01" for pid in json.loads((tmp_path / name).read_text())]
    holder.kill()
    holder.wait()
    assert all_ended(pids[:2]), "the processes themselves"
    assert all_ended(pids[2:]), "and theirs"


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
