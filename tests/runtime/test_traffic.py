"""A thousand micro-batches through stages of 1, 7 and 3 replicas, each of them a real worker."""

import os
from collections import Counter, defaultdict

import pytest

from heterps.runtime.prepare import prepare
from heterps.testing.runs import make_data, run, small_job, stages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
REPLICAS = (1, 7, 3)
# A layer in each stage notes what goes forward, and how much of it has yet to come back.
MODEL = """
import os
from pathlib import Path
from torch import nn
from heterps.models import Chain, Layer, LogLoss, SparseEmbedding

class Note(Layer):
    def __init__(self, folder, stage):
        super().__init__()
        self.folder, self.stage = folder, stage
        self.under_way = 0

    def forward(self, batch, context):
        x = batch["x"] * 1.0
        if x.requires_grad:
            self.under_way += 1
            x.register_hook(self.back)
            with Path(self.folder, f"{self.stage}-{os.getpid()}").open("a") as file:
                file.write(f"{context.micro_batch} {len(x)} {self.under_way}\\n")
        return {"x": x}

    def back(self, gradient):
        self.under_way -= 1

def build(slots, folder):
    layers = [
        *(SparseEmbedding(slots, 2), Note(folder, 0)),
        *(nn.Linear(2 * len(slots), 2), Note(folder, 1)),
        *(Note(folder, 2), nn.Linear(2, 1), LogLoss()),
    ]
    return Chain([(f"layer{number}", layer) for number, layer in enumerate(layers)])
"""


def notes_of(folder):
    """Of each stage: what each of its processes noted; this one looked at the model alone."""
    found = defaultdict(list)
    for path in folder.iterdir():
        if path.name.endswith(f"-{os.getpid()}"):
            continue
        lines = path.read_text().splitlines()
        found[int(path.name[0])].append([tuple(map(int, line.split())) for line in lines])
    return found


def make_job(folder, notes):
    (folder / "my.py").write_text(MODEL)
    data = make_data(folder, "clicks", 2000)
    changes = {
        "model": {"file": str(folder / "my.py"), "args": {"folder": str(notes)}},
        "data__train": str(data / "train/*.parquet"),
        "workload": {"batch_size": 20, "micro_batches": 10, "epochs": 1},
        "plan": stages(7, (2, 4), REPLICAS),
    }
    return small_job(folder, "ctrdnn", **changes)


def test_every_micro_batch_passes_every_stage_once_and_few_are_under_way(tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    job = make_job(tmp_path, notes)
    layout = prepare(job).layout
    expected = range(layout.train.batch(layout.batches - 1).stop)
    result, found = run(job, tmp_path / "run")
    assert result.samples == 2000
    assert len(found.losses) == layout.batches
    assert len(expected) >= 1000
    for stage, workers in notes_of(notes).items():
        assert len(workers) == REPLICAS[stage]
        seen = Counter(number for lines in workers for number, _, _ in lines)
        assert seen == Counter(expected), f"stage {stage}"
        assert sum(size for lines in workers for _, size, _ in lines) == 2000
        for lines in workers:
            numbers = [number for number, _, _ in lines]
            assert numbers == sorted(numbers)
            assert len({layout.routing.replica(stage, number) for number in numbers}) == 1
        most = max(under_way for lines in workers for _, _, under_way in lines)
        assert most <= layout.routing.credit(stage)
