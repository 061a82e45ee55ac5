"""Made-up data of each kind train the models that they are for."""

from pathlib import Path

import pytest
import torch
import yaml

from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.data.synthetic import SynthSpec, synthesise
from heterps.job.data import DataSpec
from heterps.models.local_rows import LocalTable
from heterps.models.zoo import ctrdnn, matchnet, nce, two_emb
from heterps.testing.reference_loop import reference_loop

pytestmark = pytest.mark.slow

EPOCHS = 3
SLOTS = ("C1", "C2", "C3", "C4")
CASES = {
    "ctrdnn": ("clicks", ctrdnn, {"slots": SLOTS, "dense": 2, "dim": 8, "hidden": (32, 16)}),
    "two_emb": ("clicks", two_emb, {"slots": SLOTS, "dense": 2, "hidden": (32, 16)}),
    "matchnet": ("match", matchnet, {"dim": 8, "hidden": (32, 16)}),
    "nce": ("next", nce, {"vocabulary": 60, "dim": 16, "negatives": 32}),
}
WIDTHS = {"ctrdnn": {"default": 8}, "matchnet": {"default": 8}}
WIDTHS |= {"two_emb": {"default": 32, "narrow": 8}, "nce": {"default": 16, "output": 16}}


@pytest.mark.parametrize("name", CASES)
def test_the_loss_falls(name: str, tmp_path: Path):
    kind, module, sizes = CASES[name]
    made = SynthSpec(4000, 100, kind=kind, slots=4, ids=60, dense=2)
    synthesise(made, tmp_path)
    section = yaml.safe_load((tmp_path / "data.yaml").read_text())["data"]
    data = Dataset.open(DataSpec.parse(section), base=str(tmp_path), binary=True)
    plan = LanePlan(data.samples, 4, 128, 4)
    reader = LaneReader(data, Lanes(plan, data.sizes), range(4))
    batches = (
        [reader.micro_batch(j) for j in range(*plan.batch(number)[1:])]
        for number in range(EPOCHS * plan.batches_per_epoch)
    )
    torch.manual_seed(0)
    tables = {table: LocalTable(width, "adagrad", 0.05) for table, width in WIDTHS[name].items()}
    losses = reference_loop(
        module.build(**sizes), batches, tables, lambda p: torch.optim.Adam(p, lr=0.003)
    )
    assert len(losses) == EPOCHS * plan.batches_per_epoch
    first, last = sum(losses[:5]), sum(losses[-5:])
    assert last < 0.97 * first
