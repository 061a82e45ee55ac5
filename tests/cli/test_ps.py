import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from heterps.cli.main import main
from heterps.ps.processes import registrations
from heterps.ps.protocol import TableSpec
from heterps.testing.servers import serving


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with two servers and a table."""
    folder = tmp_path_factory.mktemp("run")
    with serving(folder, 2) as client:
        table = client.create_table("ads", TableSpec(dim=4))
        table.push(np.arange(1000), np.ones((1000, 4), np.float32))
        yield folder


def test_the_text_shows_servers_and_tables(run, capsys):
    assert main(["ps", "stats", str(run)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0] == f"{run}: 2 of 2 servers answer"
    assert lines[1].split()[:4] == ["shard", "pid", "up", "clients"]
    assert [line.split()[0] for line in lines[2:4]] == ["0", "1"]
    assert lines[-1].split()[:2] == ["ads", "1,000"]


def test_the_json_holds_every_server(run, capsys):
    assert main(["ps", "stats", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [server["shard"] for server in document["servers"]] == [0, 1]
    assert sum(server["tables"]["ads"]["rows"] for server in document["servers"]) == 1000
    assert document["silent"] == []


def test_a_terminal_gets_the_same_figures(run):
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "heterps", "ps", "stats", str(run)]
    environment = {**os.environ, "COLUMNS": "200"}
    subprocess.run(command, stdout=slave, check=True, env=environment)
    os.close(slave)
    shown = os.read(master, 100_000).decode()
    os.close(master)
    assert "1,000" in shown
    assert "\x1b[" in shown


def test_a_missing_run_folder_is_one_line(tmp_path, capsys):
    assert main(["ps", "stats", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"heterps: {tmp_path}/none: no such run folder\n"


def test_a_run_without_servers_is_one_line(tmp_path, capsys):
    assert main(["ps", "stats", str(tmp_path)]) == 1
    error = f"heterps: {tmp_path}: no parameter server is registered here\n"
    assert capsys.readouterr().err == error


def test_dead_servers_are_told_from_live_ones(tmp_path: Path, capsys):
    with serving(tmp_path, 2):
        first, second = registrations(tmp_path)
        os.kill(second.pid, signal.SIGKILL)
        assert main(["ps", "stats", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert "1 of 2 servers answer" in out
        assert f"shard 1 at {second.address}: " in out
        os.kill(first.pid, signal.SIGKILL)
        assert main(["ps", "stats", str(tmp_path)]) == 1
        error = capsys.readouterr().err
    assert error.startswith(f"heterps: {tmp_path}: no server answers; shard 0 at ipc")
    assert error.count("\n") == 1
