"""Train a small model in processes of this machine, then use it as an ordinary torch module."""

import tempfile
from pathlib import Path

import torch

import heterps
from heterps.data.synthetic import SynthSpec, synthesise

JOB = {
    "model": {"zoo": "ctrdnn", "args": {"dim": 8, "hidden": [32]}},
    "data": {
        "train": "data/train",
        "validation": "data/validation",
        "dense": ["I1", "I2"],
        "sparse": ["C1", "C2", "C3", "C4"],
    },
    "optimizer": {"name": "adam", "lr": 0.005},
    "workload": {"batch_size": 512, "micro_batches": 2, "epochs": 1},
    "cluster": {"types": [{"name": "core", "price_per_hour": 0.04, "limit": 2}]},
}
# The embedding on one core, the layers after it on another.
PLAN = {
    "stages": [
        {"first": 0, "last": 1, "type": "core", "units": 1},
        {"first": 2, "last": 6, "type": "core", "units": 1},
    ]
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        synthesise(SynthSpec(20_000, 4_000, slots=4, dense=2, ids=500), Path(folder, "data"))
        job = heterps.Job.parse(JOB).in_folder(folder)
        result = heterps.train(job, PLAN, out=Path(folder, "run"))
        print(f"{result.steps} steps, better than a guess: {result.metrics['auc'] > 0.6}")

        run = heterps.load_run(result.folder)
        model = run.predictor()  # an nn.Module
        held = f"{folder}/data/validation"
        chance = torch.cat([model(batch) for batch in run.batches([held])])
        print(f"{len(chance)} probabilities, the mean label is met to a tenth: {met(run)}")


def met(run: heterps.TrainedRun) -> bool:
    return abs(run.evaluate().value("calibration") - 1) < 0.1


if __name__ == "__main__":
    main()
