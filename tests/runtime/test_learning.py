"""A pipeline learns what plain torch learns: the same model with torch's own embedding bag, sparse
Adagrad and Adam, over the same batches."""

import pytest
import torch
import yaml
from torch import nn

from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.data.synthetic import SECTION, SynthSpec, synthesise
from heterps.job.spec import Job
from heterps.runtime.metrics import BinaryCounts
from heterps.runtime.prepare import prepare
from heterps.testing.runs import batches_of, run, stages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),  # torch warns of its own
]
SLOTS, DIM, DENSE, HIDDEN = 6, 8, 4, (32, 16)


class PlainModel(nn.Module):
    def __init__(self, ids: torch.Tensor) -> None:
        super().__init__()
        self.known = ids  # ascending; the row of an id is its place here
        self.table = nn.Embedding(len(ids) + 1, DIM, sparse=True)
        nn.init.uniform_(self.table.weight, -0.01, 0.01)
        width = SLOTS * DIM + DENSE
        self.deep = nn.Sequential(
            nn.Linear(width, HIDDEN[0]), nn.ReLU(),
            nn.Linear(HIDDEN[0], HIDDEN[1]), nn.ReLU(), nn.Linear(HIDDEN[1], 1),
        )  # fmt: skip

    def forward(self, batch):
        ids = torch.stack([batch[f"C{slot}"] for slot in range(1, SLOTS + 1)], dim=1)
        places = torch.searchsorted(self.known, ids).clamp(max=len(self.known) - 1)
        places = torch.where(self.known[places] == ids, places, len(self.known))
        x = torch.cat([self.table(places).flatten(1), batch["dense"]], dim=1)
        return self.deep(x)[:, 0]


def train_plainly(job):
    batches = [
        {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        for parts in batches_of(prepare(job))
    ]
    slots = [batch[f"C{slot}"] for batch in batches for slot in range(1, SLOTS + 1)]
    torch.manual_seed(0)
    model = PlainModel(torch.unique(torch.cat(slots)))
    sparse = torch.optim.Adagrad(model.table.parameters(), lr=0.05)
    dense = torch.optim.Adam(model.deep.parameters(), lr=0.003)
    for batch in batches:
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["label"])
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
    return model


def auc_of(model, job):
    data = Dataset.open(job.data, "validation", job.folder)
    lanes = Lanes(LanePlan(data.samples, 1, data.samples), data.sizes, shuffle=False)
    batch = LaneReader(data, lanes, [0]).micro_batch(0)
    counts = BinaryCounts()
    with torch.no_grad():
        counts.add(torch.sigmoid(model(batch)), batch["label"])
    return counts.auc


@pytest.fixture
def job(tmp_path):
    spec = SynthSpec(24_000, 6_000, files=2, slots=SLOTS, dense=DENSE, ids=300)
    ceiling = synthesise(spec, tmp_path / "data")["ceiling"]["auc"]
    section = yaml.safe_load((tmp_path / "data" / SECTION).read_text())["data"]
    for part in ("train", "validation"):
        section[part] = str(tmp_path / "data" / section[part])
    args = {"dim": DIM, "hidden": list(HIDDEN), "norm": False}
    document = {
        "model": {"zoo": "ctrdnn", "args": args},
        "data": section,
        "tables": {"default": {"rule": "adagrad", "lr": 0.05, "options": {"eps": 1e-10}}},
        "optimizer": {"name": "adam", "lr": 0.003},
        "workload": {"batch_size": 256, "micro_batches": 2, "epochs": 1.5},
        "cluster": {"types": [{"name": "cpu", "price_per_hour": 0.04, "limit": 16}]},
        "plan": stages(8, (2,), (2, 1)),
        "servers": {"count": 2},
    }
    return Job.parse(document).in_folder(tmp_path), ceiling


def test_a_pipeline_learns_as_well_as_plain_torch(job, tmp_path):
    job, ceiling = job
    result, _ = run(job, tmp_path / "run")
    plain = auc_of(train_plainly(job), job)
    assert result.metrics["auc"] == pytest.approx(plain, abs=0.01)
    assert 0.65 < result.metrics["auc"] < ceiling
