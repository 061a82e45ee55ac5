"""What a process makes of signals: of its parent's, and of others'."""

import os
import signal
import subprocess
import sys

import pytest

from heterps.processes import Child
from heterps.testing.engines import all_ended

_OWNER = """
import os, signal, sys, time
from pathlib import Path
from heterps import parent

own = Path(sys.argv[1])
parent._PATIENCE_S = float(sys.argv[2])

def clear_up():
    os.kill(os.getpid(), signal.SIGTERM)
    own.unlink()

parent.at_end(clear_up)
own.touch()
time.sleep(600 if float(sys.argv[2]) else 0)
"""
_PARENT = """
import sys, time
from pathlib import Path
from heterps.processes import Child

folder = Path(sys.argv[1])
child = Child("owner", [str(folder / "own"), "600"], folder / "log", {"PYTHONPATH": str(folder)})
while not (folder / "own").exists():
    time.sleep(0.02)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path):
    """Starts one that has the file ``own`` until it ends in order."""
    (tmp_path / "owner.py").write_text(_OWNER)
    children = []

    def start(patience_s=600.0):
        arguments = [str(tmp_path / "own"), str(patience_s)]
        child = Child("owner", arguments, tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
        children.append(child)
        while not (tmp_path / "own").exists():
            assert child.wait(0.02) is None, child.last_words()
        return child

    yield start
    for child in children:
        child.kill()


def test_a_process_that_is_told_to_end_clears_up_first_though_it_is_told_again(owner, tmp_path):
    child = owner()
    child.terminate()
    assert child.wait(60.0) == -signal.SIGTERM
    assert not (tmp_path / "own").exists()


def test_a_process_that_ends_by_itself_clears_up_too(tmp_path):
    (tmp_path / "owner.py").write_text(_OWNER.replace("os.kill(os.getpid(), signal.SIGTERM)", ""))
    own = tmp_path / "own"
    child = Child("owner", [str(own), "0"], tmp_path / "log", {"PYTHONPATH": str(tmp_path)})
    assert child.wait(60.0) == 0
    assert not own.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_from_elsewhere_leaves_the_end_to_the_parent(owner, tmp_path, number):
    child = owner()
    for _ in range(2):
        os.kill(child.pid, number)
        assert child.wait(0.5) is None, "it may be needed"
    child.terminate()
    assert child.wait(60.0) == -signal.SIGTERM
    assert not (tmp_path / "own").exists()


def test_a_process_may_end_between_the_end_of_its_input_and_the_signal(owner, monkeypatch):
    child = owner()
    os.kill(child.pid, signal.SIGTERM)
    close = child._close_input

    def close_and_wait():
        close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(child, "_close_input", close_and_wait)
    child.terminate()
    monkeypatch.undo()
    assert child.wait(60.0) == -signal.SIGTERM


def test_after_a_signal_from_elsewhere_a_process_does_not_wait_for_ever(owner, tmp_path):
    child = owner(patience_s=0.1)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(60.0) == -signal.SIGTERM
    assert not (tmp_path / "own").exists()


def test_after_a_signal_from_elsewhere_a_process_ends_with_its_parent(tmp_path):
    (tmp_path / "owner.py").write_text(_OWNER)
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        os.kill(child, signal.SIGTERM)
        ended = all_ended([child], 0.5)
        parent.kill()
    assert not ended
    assert all_ended([child])
    assert not (tmp_path / "own").exists()
