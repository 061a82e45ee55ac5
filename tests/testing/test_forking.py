"""Forked processes end with the one that started them."""

import os
import signal
import subprocess
import sys

import pytest

from heterps.testing.engines import all_ended

HOLDER = """
import sys, time
from pathlib import Path
from heterps.runtime.engines.base import ProcessSpec
from heterps.testing.forking import ForkEngine

place = ("--shard", "0", "--shards", "1", "--run", sys.argv[1], "--generation", "0")
handle = ForkEngine(Path(sys.argv[1])).start(ProcessSpec("server-0", "heterps.ps.server", place))
print(handle.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_killed_parent_leaves_no_process(tmp_path):
    from heterps.wire.keys import create_key

    create_key(tmp_path)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        pid = int(holder.stdout.readline())
        os.kill(holder.pid, signal.SIGKILL)
    assert all_ended([pid])
