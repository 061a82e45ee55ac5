"""What a worker process sets for itself. What it does is tested by runs."""

import subprocess
import sys

_COMPUTE = """
import torch
from heterps.runtime.worker import compute_with

compute_with(2)
tiny = torch.full((1 << 20,), 2.0**-126)
print(torch.get_num_threads(), int((tiny / 2).count_nonzero()))
"""


def test_all_threads_flush_what_is_too_small_to_handle_quickly():
    command = [sys.executable, "-c", _COMPUTE]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.split() == ["2", "0"]
