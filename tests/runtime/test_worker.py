"""What a worker process sets for itself. What it does is tested by runs."""

import subprocess
import sys
from types import SimpleNamespace

from heterps.runtime.metrics import LossCounts
from heterps.runtime.orders import Segment
from heterps.runtime.worker import Worker

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


class Replica:
    """Commits batches as quickly as it is asked to."""

    def train(self, first, reader, orders):
        for batch in range(first, orders.segment().end):
            orders.committed(batch)

    def figures(self):
        return {}

    def take_losses(self):
        return [(0, 0.5)]

    def take_counts(self):
        return LossCounts()


class Line:
    def __init__(self):
        self.said = []
        self.commands = SimpleNamespace(empty=lambda: True)

    def send(self, kind, fields=None):
        self.said.append((kind, (fields or {}).get("batch")))


def test_the_first_batch_of_a_segment_is_told_at_once_as_its_pace_counts_from_there():
    line = Line()
    worker = Worker(None, b"", line, None)
    worker._replica = Replica()
    worker._layout = SimpleNamespace(train=None, batches=40)
    worker._reader = lambda *_: None
    for first, end in ((0, 20), (20, 40)):
        worker._segment = Segment(first, closed=False)
        worker._do_train(SimpleNamespace(fields={"first": first, "end": end, "closed": True}))
    told = [batch for kind, batch in line.said if kind == "progress"]
    assert {0, 19, 20, 39} <= set(told)
    assert len(told) < 10
