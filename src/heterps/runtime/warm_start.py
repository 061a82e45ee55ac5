"""Weights and rows that a run starts from, instead of the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from heterps.data.schema import SlotKind
from heterps.errors import InputError, SnapshotError
from heterps.job.spec import Job
from heterps.ps.protocol import TableSpec
from heterps.ps.snapshots import open_snapshot
from heterps.runtime.run_folder import MODEL
from heterps.runtime.saved_model import TABLES, load_dense, read_manifest
from heterps.runtime.slots import kinds_in


class WarmStart(NamedTuple):
    """Weights by name, where the snapshot of the tables is, if there is one, and what slots held
    where it was trained, if that is known."""

    weights: dict[str, Tensor]
    tables: Path | None
    kinds: Mapping[str, SlotKind]


def read_warm_start(
    job: Job, own: Mapping[str, Tensor], tables: Mapping[str, int]
) -> WarmStart | None:
    """What the job's ``warm_start`` names, for a model with the weights ``own`` and ``tables`` of
    these widths: a run folder, or a file of weights that ``torch.save`` or safetensors wrote.
    Raises InputError for what cannot be read, or does not fit.
    """
    if job.warm_start is None:
        return None
    source = Path(job.path(job.warm_start))
    if source.is_dir():
        found = _of_run(source / MODEL, tables)
    else:
        found = WarmStart(_of_file(source), None, {})
    _check(own, found.weights, job.warm_start)
    weights = {name: found.weights[name].to(own[name].dtype) for name in own}
    return found._replace(weights=weights)


def check_tables(path: Path, tables: Mapping[str, TableSpec]) -> None:
    """Raises InputError where the rows of a snapshot are not those of such tables."""
    held = open_snapshot(path).tables
    for name, spec in tables.items():
        saved = held[name][0]["settings"]
        wanted = {"rule": spec.rule, "initial": spec.initial, "scale": float(spec.scale)}
        for key, value in wanted.items():
            if saved[key] != value:
                problem = f"was saved with {key} {saved[key]}, this job has {value}"
                raise InputError("warm_start", f"table '{name}' of {path} {problem}")
        if saved["seed"] != spec.seed:
            problem = "belongs to a run with another seed: rows that are not in it would differ"
            fix = "set the job's seed to that of the run"
            raise InputError("warm_start", f"table '{name}' of {path} {problem}; {fix}")


def _of_run(model: Path, tables: Mapping[str, int]) -> WarmStart:
    try:
        weights = load_dense(model)
        held = open_snapshot(model / TABLES).tables
        about = read_manifest(model)
    except SnapshotError as error:
        raise InputError("warm_start", str(error)) from None
    for name, dim in tables.items():
        if name not in held:
            raise InputError("warm_start", f"{model} has no table '{name}'")
        saved = held[name][0]["settings"]["dim"]
        if saved != dim:
            problem = f"table '{name}' of {model} has rows of {saved}, the model's of {dim}"
            raise InputError("warm_start", problem)
    kinds = kinds_in(about, f"{model.parent}, the warm start,")
    return WarmStart(weights, model / TABLES, kinds)


def _of_file(source: Path) -> dict[str, Tensor]:
    try:
        if source.suffix == ".safetensors":
            return safetensors.torch.load_file(source)
        state = torch.load(source, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, UnpicklingError, SafetensorError) as error:
        problem = f"cannot be read ({(str(error).splitlines() or ['?'])[0]})"
        raise InputError("warm_start", f"{source} {problem}") from None
    if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
        raise InputError("warm_start", f"{source} holds no state_dict: names and tensors")
    return state


def _check(own: Mapping[str, Tensor], state: Mapping[str, Tensor], given: str) -> None:
    for name, weight in own.items():
        if name not in state:
            raise InputError("warm_start", f"{given} has no weights '{name}'")
        if state[name].shape != weight.shape:
            found, wanted = list(state[name].shape), list(weight.shape)
            problem = f"'{name}' of {given} has the shape {found}, the model's {wanted}"
            raise InputError("warm_start", problem)
