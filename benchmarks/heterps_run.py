"""HeterPS on the training benchmark: whole runs of `heterps train`, as a person would start them.

A run reads its samples from Parquet and has a coordinator, workers and a parameter server, each a
process. It passes over the data several times; all passes but the first count.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commands import output_of
from heterps.data.criteo import DENSE, SPARSE
from heterps.events import read_events

HIDDEN = [400, 400, 400]
LAYERS = 2 + 2 * len(HIDDEN) + 2  # embedding, concat; linear and ReLU; out, loss


@dataclass(frozen=True)
class Shape:
    """How the model is cut and spread: the first layer of each stage, its replicas, and the
    threads of one."""

    cuts: tuple[int, ...] = (0,)
    units: tuple[int, ...] = (1,)
    threads: int = 1
    micro_batches: int = 1


# A worker for each core: no thread waits for another's.
ONE_STAGE = Shape(units=(2,))
# The first stage looks up. Both have two workers, as either has nothing to do now and then.
TWO_STAGES = Shape(cuts=(0, 2), units=(2, 2))
# With little to do in a batch, messages and the sum over replicas weigh more: a worker for each
# core again, cut where both have about as much to do.
TWO_SMALL_STAGES = Shape(cuts=(0, 4), units=(1, 1))
SMALL_BATCH = 1024


def shape_of(stages: int, staleness: int, batch: int) -> Shape:
    """Where batches may overlap, two are at work without being cut up. Else each is two
    micro-batches, which are looked up side by side: everybody waits for that."""
    two = TWO_SMALL_STAGES if batch <= SMALL_BATCH else TWO_STAGES
    shape = ONE_STAGE if stages == 1 else two
    return shape if staleness else replace(shape, micro_batches=2)


def heterps_samples_per_s(
    batch: int, staleness: int, stages: int, data: Path, passes: int = 2
) -> dict[str, Any]:
    """One run on the Parquet file ``data``: samples per second and mean loss of all passes but the
    first.

    Raises RuntimeError with what the run said when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="heterps-bench-") as folder:
        job, run = Path(folder) / "job.json", Path(folder) / "run"
        document = job_document(batch, staleness, shape_of(stages, staleness, batch), data, passes)
        job.write_text(json.dumps(document))
        command = [sys.executable, "-m", "heterps", "train", str(job), "--out", str(run), "--json"]
        output_of(command)
        return later_passes(run / "events.jsonl", passes)


def job_document(
    batch: int, staleness: int, shape: Shape, data: Path, passes: int = 2
) -> dict[str, Any]:
    ends = [*shape.cuts[1:], LAYERS]
    names = [f"stage{number}" for number in range(len(shape.cuts))]
    return {
        "model": {"zoo": "ctrdnn", "args": {"hidden": HIDDEN, "norm": False}},
        "data": {
            "train": str(data.resolve()),
            "label": "label",
            "dense": list(DENSE),
            "sparse": list(SPARSE),
        },
        "tables": {"default": {"dim": 16, "rule": "rowwise_adagrad", "lr": 0.05}},
        "optimizer": {"name": "adam", "lr": 0.001},
        "workload": {
            "batch_size": batch,
            "micro_batches": shape.micro_batches,
            "epochs": passes,
            "staleness": staleness,
        },
        "cluster": {
            "types": [
                {"name": name, "threads": shape.threads, "price_per_hour": 0, "limit": units + 1}
                for name, units in zip(names, shape.units, strict=True)
            ]
        },
        "plan": {
            "stages": [
                {"first": first, "last": end - 1, "type": name, "units": units}
                for first, end, name, units in zip(
                    shape.cuts, ends, names, shape.units, strict=True
                )
            ]
        },
        "servers": {"count": 1, "type": names[0], "threads": 2},
        "seed": 0,
    }


def later_passes(events: Path, passes: int) -> dict[str, Any]:
    """From the first report after the first pass to the last one, by the batches that workers have
    committed and the time that they took for them: what the coordinator knows of a run when it
    reports is up to a quarter of a second old.

    Raises RuntimeError where there are too few reports for that.
    """
    progress = [event for event in read_events(events) if event["kind"] == "progress"]
    steps = progress[-1]["steps"] // passes
    own = [event["stages"][-1] for event in progress if event["stages"][-1]]
    later = [stage for stage in own if stage["batches"] >= steps]
    if len(later) < 2:
        raise RuntimeError("the pace after the first pass is not known: too few reports")
    batches, seconds = (later[-1][key] - later[0][key] for key in ("batches", "committed_s"))
    size = progress[-1]["samples"] / progress[-1]["step"]
    losses = [loss for event in progress for loss in event["losses"]][steps:]
    return {
        "samples_per_s": size * batches / seconds,
        "timed_s": seconds,
        "loss": sum(losses) / len(losses),
        "busy": progress[-1]["busy"],
        "stages": progress[-1]["stages"],
    }
