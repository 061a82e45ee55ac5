import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heterps.errors import InputError, ServerError
from heterps.ps import processes
from heterps.ps.client import Client
from heterps.ps.processes import Registration, registration_path, registrations, start_servers
from heterps.ps.protocol import TableSpec
from heterps.ps.server import Server
from heterps.testing.servers import serving
from heterps.wire.keys import create_key, read_key
from heterps.wire.segments import PREFIX, segment_folder

DIM = 4


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def await_end(pid: int, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not lives(pid)


def segments() -> set[str]:
    """Segments that have a name, made by this process."""
    return {p.name for p in segment_folder().glob(f"{PREFIX}{os.getpid()}-*")}


def maps_segments(pid: int) -> bool:
    return f"{segment_folder()}/{PREFIX}" in Path(f"/proc/{pid}/maps").read_text()


def train(client: Client, rows: int = 1000) -> None:
    table = client.create_table("t", TableSpec(dim=DIM))
    table.push(np.arange(rows), np.ones((rows, DIM), np.float32))
    table.pull(np.arange(rows))


def test_servers_come_register_and_leave_nothing_behind(tmp_path):
    create_key(tmp_path)
    with start_servers(tmp_path, 2) as found:
        assert [r.shard for r in found] == [0, 1]
        assert registrations(tmp_path) == found
        with Client.of_run(tmp_path) as client:
            train(client)
            assert segments() == set()
            assert maps_segments(found[0].pid)
        deadline = time.monotonic() + 20
        while maps_segments(found[0].pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not maps_segments(found[0].pid)
        sockets = [Path(r.addresses[0].removeprefix("ipc://")) for r in found]
        assert all(path.is_socket() for path in sockets)
    assert not any(lives(r.pid) for r in found)
    assert sorted(p.name for p in (tmp_path / "servers").iterdir()) == [
        "shard-0.log",
        "shard-1.log",
    ]
    assert all(not p.read_text() for p in (tmp_path / "servers").iterdir())


def test_a_server_that_is_killed_on_its_way_out_is_still_known_by_its_registration(
    tmp_path, monkeypatch
):
    """By which its socket is found and removed."""
    create_key(tmp_path)
    removed, unlink, run = [], Path.unlink, Server.run

    def stopped(server):
        server.stop()
        run(server)
        removed.clear()

    def noted(path, **options):
        removed.append(path.suffix)
        unlink(path, **options)

    monkeypatch.setattr(processes, "when_told", lambda end: None)
    monkeypatch.setattr(Server, "run", stopped)
    monkeypatch.setattr(Path, "unlink", noted)
    assert processes.main(["--run", str(tmp_path), "--shard", "0", "--shards", "1"]) == 0
    assert ".sock" in removed
    assert removed.index(".json") > removed.index(".sock")


def test_a_server_that_others_tell_to_end_serves_until_its_parent_does(tmp_path):
    create_key(tmp_path)
    with start_servers(tmp_path, 1) as [found], Client.of_run(tmp_path) as client:
        os.kill(found.pid, signal.SIGTERM)
        assert not await_end(found.pid, 0.5)
        train(client)
    assert not lives(found.pid)


def test_the_key_is_in_no_argument_or_file(tmp_path):
    key = create_key(tmp_path)
    with start_servers(tmp_path, 1) as (found,):
        command = Path(f"/proc/{found.pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{found.pid}/environ").read_bytes()
        written = b"".join(p.read_bytes() for p in (tmp_path / "servers").iterdir() if p.is_file())
    for form in (key, key.hex().encode()):
        assert form not in command + environment + written


def test_a_long_path_gets_a_socket_elsewhere_which_is_removed(tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with serving(folder) as client:
        client.ping()
        socket = Path(registrations(folder)[0].addresses[0].removeprefix("ipc://"))
        assert len(str(socket)) < 108
    assert not socket.parent.exists()


@pytest.mark.slow
@pytest.mark.parametrize("tcp", [False, True])
def test_a_killed_server_is_an_error_within_the_deadline(tmp_path, tcp):
    with serving(tmp_path, 2, tcp=tcp, timeout_s=10) as client:
        table = client.create_table("t", TableSpec(dim=DIM))
        os.kill(registrations(tmp_path)[1].pid, signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(ServerError, match=r"shard 1 at (ipc|tcp)://\S+: "):
            table.pull(np.arange(100))
        assert time.monotonic() - started < 10
    assert segments() == set()


@pytest.mark.slow
@pytest.mark.parametrize("tcp", [False, True])
def test_a_frozen_server_is_an_error_in_time_and_serves_on_when_it_thaws(tmp_path, tcp):
    with serving(tmp_path, 1, tcp=tcp, timeout_s=6) as client:
        table = client.create_table("t", TableSpec(dim=DIM))
        pid = registrations(tmp_path)[0].pid
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ServerError, match=r"shard 0 at .*: no answer"):
            table.pull([1], timeout_s=2)
        pushed = table.push_async([1], np.ones((1, DIM), np.float32), timeout_s=20)
        time.sleep(3)  # long enough for the connection to be given up
        os.kill(pid, signal.SIGCONT)
        pushed.result(30)
        assert table.step == 1


def test_a_call_under_way_fails_when_the_server_is_killed(tmp_path):
    with serving(tmp_path, 1, timeout_s=30) as client:
        waiting = client.create_table("t", TableSpec(dim=DIM)).pull_async([1], batch=7)
        client.ping()
        os.kill(registrations(tmp_path)[0].pid, signal.SIGKILL)
        with pytest.raises(ServerError, match="shard 0 at ipc"):
            waiting.result(20)


@pytest.mark.slow
def test_what_a_killed_server_leaves_is_removed(tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    create_key(folder)
    with start_servers(folder, 1) as (found,):
        os.kill(found.pid, signal.SIGKILL)
        assert await_end(found.pid)
    assert not registration_path(folder, 0).exists()
    assert not Path(found.addresses[0].removeprefix("ipc://")).parent.exists()


@pytest.mark.slow
def test_a_server_started_anew_is_noticed(tmp_path):
    create_key(tmp_path)
    with start_servers(tmp_path, 1) as (first,):
        path = first.addresses[0]
        with Client([path], read_key(tmp_path), timeout_s=20, retries=2) as client:
            train(client)
            os.kill(first.pid, signal.SIGKILL)
            assert await_end(first.pid)
            from heterps.ps.server import Server

            second = Server(read_key(tmp_path))
            second.bind(path)
            thread = threading.Thread(target=second.run)
            thread.start()
            try:
                with pytest.raises(ServerError, match="started anew, its rows are gone"):
                    client.table("t")
            finally:
                second.stop()
                thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("thread", [False, True])
def test_servers_end_when_their_parent_is_killed(tmp_path, thread):
    create_key(tmp_path)
    code = f"""
import threading, time
from pathlib import Path
from heterps.ps.processes import start_servers
def work():
    with start_servers(Path({str(tmp_path)!r}), 2):
        time.sleep(600)
if {thread}:
    threading.Thread(target=work).start()
    time.sleep(600)
work()
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            paths = [registration_path(tmp_path, shard) for shard in range(2)]
            if all(path.exists() for path in paths):
                break
            time.sleep(0.05)
        pids = [json.loads(path.read_text())["pid"] for path in paths]
    finally:
        parent.kill()
        parent.wait()
    assert all(await_end(pid) for pid in pids)


@pytest.mark.slow
def test_a_killed_client_leaves_no_segments(tmp_path):
    create_key(tmp_path)
    code = f"""
import os, signal
import numpy as np
from heterps.ps.client import Client
from heterps.ps.protocol import TableSpec
client = Client.of_run({str(tmp_path)!r})
table = client.create_table("t", TableSpec(dim=16))
for size in (1000, 100_000):
    table.push(np.arange(size), np.ones((size, 16), np.float32))
os.kill(os.getpid(), signal.SIGKILL)
"""
    with start_servers(tmp_path, 1):
        ended = subprocess.Popen([sys.executable, "-c", code])
        assert ended.wait(60) == -signal.SIGKILL
        assert list(segment_folder().glob(f"{PREFIX}{ended.pid}-*")) == []
        with Client.of_run(tmp_path) as client:
            assert len(client.table("t")) == 100_000


def test_servers_that_cannot_start_say_why(tmp_path):
    with pytest.raises(InputError, match="no key of a run"), start_servers(tmp_path, 1):
        pass
    create_key(tmp_path)
    unable = pytest.raises(ServerError, match="shard 0 ended at its start: cannot listen on tcp")
    with unable, start_servers(tmp_path, 1, listen="203.0.113.1"):
        pass


def test_runs_without_servers_say_so(tmp_path):
    with pytest.raises(InputError, match="no parameter server is registered here"):
        registrations(tmp_path)
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "shard-0.json").write_text("{}")
    with pytest.raises(InputError, match=r"shard-0.json: not a server's registration"):
        registrations(tmp_path)


def test_the_nearest_address_is_taken():
    here = Registration(0, 1, 0, ("ipc:///a", "tcp://h:1"), False, 1, socket.gethostname())
    assert here.address == "ipc:///a"
    assert replace(here, host="elsewhere").address == "tcp://h:1"
    assert replace(here, addresses=("tcp://h:1",)).address == "tcp://h:1"


def test_a_run_with_a_missing_shard_says_so(tmp_path):
    create_key(tmp_path)
    with start_servers(tmp_path, 2):
        registration_path(tmp_path, 0).unlink()
        with pytest.raises(ServerError, match=r"not every shard has a server \(there are 1 of 2\)"):
            Client.of_run(tmp_path)
