"""Made-up clicks as micro-batches; run it in the root of the repository."""

import tempfile
from pathlib import Path

from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan, lanes_of_replica
from heterps.data.lanes import Lanes
from heterps.data.prefetch import Prefetch
from heterps.data.reader import LaneReader
from heterps.data.synthetic import SynthSpec, synthesise
from heterps.job.data import DataSpec

with tempfile.TemporaryDirectory() as folder:
    made = SynthSpec(rows=10_000, validation_rows=10_000, slots=3, ids=1000, dense=2)
    summary = synthesise(made, Path(folder))
    print(f"no model beats an AUC of {summary['ceiling']['auc']:.2f}")

    spec = DataSpec.parse(
        {
            "train": f"{folder}/train/*.parquet",
            "label": "label",
            "dense": ["I1", "I2"],
            "sparse": ["C1", "C2", "C3"],
        }
    )
    data = Dataset.open(spec, "train", binary=True)
    plan = LanePlan(data.samples, lanes=16, micro_batch_size=512, micro_batches=8)
    print(f"{plan.batches_per_epoch} batches, {plan.per_epoch} micro-batches an epoch")

    # What replica 1 of 2 reads: the odd lanes.
    lanes = Lanes(plan, data.sizes, seed=0)
    reader = LaneReader(data, lanes, lanes_of_replica(1, 2, plan.lanes))
    with Prefetch(reader, stop=plan.per_epoch) as ahead:
        batch = ahead.micro_batch(1)
    print({name: list(tensor.shape) for name, tensor in batch.items()})

    # After 11 micro-batches, each lane knows how many of its own are done.
    cursors = plan.cursors(11)
    print(f"go on with micro-batch {plan.resume(cursors)}")
