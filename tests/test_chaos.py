"""The benchmark that kills processes, for a short while."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[1] / "benchmarks" / "chaos.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_killed_processes_ends_with_the_same_bits(tmp_path):
    out = tmp_path / "chaos.json"
    options = [
        "--kills",
        "2",
        "--per-run",
        "2",
        "--epochs",
        "24",
        "--seed",
        "1",
        "--json",
        str(out),
    ]
    done = subprocess.run(
        [sys.executable, str(CHAOS), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["identical"]
    assert all(found["identical"])
    assert len(found["kills"]) == 2
