"""The head of a Ray cluster dies: Ray then ends every process that looks for it, after a while."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest
import yaml

from heterps.errors import ProcessError
from heterps.events import read_events
from heterps.runtime.engines.ray.head import Head
from heterps.testing.engines import all_ended
from heterps.testing.ports import free_ports
from heterps.testing.runs import small_job

WAITS = "RAY_gcs_rpc_server_reconnect_timeout_s"


def test_a_head_that_stays_silent_is_lost_before_ray_ends_the_process(monkeypatch):
    monkeypatch.setenv(WAITS, "3")
    head, began = Head(f"127.0.0.1:{free_ports(1)[0]}"), time.monotonic()
    with pytest.raises(ProcessError, match=r"'ray' has lost its head: 127.* is silent for 2 s; `h"):
        head.wait_for(Event())
    assert time.monotonic() - began >= 2
    assert head.lost is not None


def test_who_does_not_want_to_know_does_not_wait():
    head, closing = Head(f"127.0.0.1:{free_ports(1)[0]}"), Event()
    closing.set()
    head.wait_for(closing)
    assert head.lost is None


def family(pid):
    """The command lines of all that a process has started, and of what they have, by pid."""
    lines, parents = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
            lines[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (ValueError, OSError):
            continue
    found = {pid}
    while more := {n for n, parent in parents.items() if parent in found} - found:
        found |= more
    return {n: lines[n] for n in found - {pid} if n in lines}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("alone", [True, False])
def test_a_run_that_has_lost_the_head_says_so_and_ends(tmp_path, alone):
    """With its workers, it first sees that they have ended."""
    job = small_job(tmp_path, "two_emb", (1,), engine="ray", workload__epochs=10_000)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job.document()))
    command = ["train", str(tmp_path / "job.yaml"), "--out", str(tmp_path / "run"), "--json"]
    started = subprocess.Popen(
        [sys.executable, "-m", "heterps", *command],
        env={**os.environ, WAITS: "30"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with started:
        events = tmp_path / "run" / "events.jsonl"
        while not events.exists() or all(e["kind"] != "progress" for e in read_events(events)):
            assert started.poll() is None
            time.sleep(0.2)
        own = family(started.pid)
        (head,) = [pid for pid, line in own.items() if "/gcs_server" in line.partition(" ")[0]]
        children = [pid for pid, line in own.items() if "heterps.processes" in line]
        for pid in [head] if alone else [head, *children]:
            os.kill(pid, signal.SIGKILL)
        _, said = started.communicate(timeout=120)
    assert started.returncode == 1
    assert "process 'ray' has lost its head: " in said
    *_, last = read_events(events)
    assert last["kind"] == "failed"
    assert last["error"].endswith("is silent for 20 s; `heterps resume` goes on in another cluster")
    assert children
    assert all_ended(children)
