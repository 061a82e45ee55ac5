"""What ``heterps init`` puts into a new folder."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from heterps.data.synthetic import SynthSpec, synthesise
from heterps.data.writing import Progress, nothing, write_text
from heterps.errors import InputError
from heterps.job.load import load_job
from heterps.models.load import load_model
from heterps.models.trace import LayerTrace, trace

_FILES = {"job.txt": "job.yaml", "model.txt": "model.py", "cluster.txt": "cluster.yaml"}
_DATA = SynthSpec(rows=60_000, validation_rows=12_000, slots=6, dense=4, ids=2_000)
_SAMPLES = 1024
# Made-up units: operations per second, and bytes of rows and of input.
_SPEEDS = {"front": (5e7, 1e7, 2e8), "back": (1e9, 5e5, 2e8)}


def write_starter(folder: Path, progress: Progress = nothing) -> dict[str, Any]:
    """A job, a model, data, a cluster and a profile in a new or empty folder; what the true model
    reaches on the data. Raises InputError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = next(folder.iterdir(), None)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made ({error.strerror})") from None
    if held is not None:
        raise InputError(str(folder), f"holds '{held.name}' already: name a new or empty folder")
    for source, name in _FILES.items():
        text = files("heterps.cli.starter").joinpath(source).read_text(encoding="utf-8")
        write_text(folder / name, text)
    write_text(folder / "profile.json", "{}")  # for the job to be read
    summary = synthesise(_DATA, folder / "data", progress)
    write_text(folder / "profile.json", json.dumps(_profile(folder), indent=1) + "\n")
    ceiling: dict[str, Any] = summary["ceiling"]
    return ceiling


def _profile(folder: Path) -> dict[str, Any]:
    """What the layers would take on the made-up units, from their operations and bytes."""
    import torch

    job = load_job(folder / "job.yaml")
    assert job.data is not None
    assert job.model is not None
    slots, dense = [slot.name for slot in job.data.sparse], len(job.data.dense)
    chain = load_model(job.model, folder, defaults={"slots": slots, "dense": dense})
    batch = {"label": torch.zeros(64), "dense": torch.zeros(64, dense)}
    batch |= {slot: torch.arange(64) for slot in slots}
    layers = [_layer(layer) for layer in trace(chain, batch).layers]
    about = {"model": "model.py", "batch_size": _SAMPLES, "source": "made up by heterps init"}
    return {**about, "layers": layers}


def _layer(layer: LayerTrace) -> dict[str, Any]:
    on = {}
    for name, (operations, rows, inputs) in _SPEEDS.items():
        on[name] = {
            "compute_s": _rounded(3 * layer.flops * _SAMPLES / operations),
            "comm_s": _rounded(2 * layer.row_bytes * _SAMPLES / rows),
            "alpha": 0.95,
            "beta": 0.9,
            "transfer_s": _rounded(2 * layer.input_bytes * _SAMPLES / inputs),
        }
    about = {"name": layer.name, "kind": layer.kind, "input_bytes": layer.input_bytes}
    return {**about, "weight_bytes": layer.weight_bytes, "on": on}


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
