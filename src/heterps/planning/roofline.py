"""A profile of types that are not at hand, from published figures: no layer is quicker than the
arithmetic, the memory and the link of its unit allow. Nothing of it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from heterps.errors import InputError
from heterps.job.catalog import Hardware
from heterps.job.resources import Cluster
from heterps.planning.profile import Profile

SOURCE = "roofline"
_PASSES = 3  # backward makes two matrix products where forward makes one
_BOTH_WAYS = 2  # rows and their gradients, activations and theirs


class LayerFigures(Protocol):
    """What a trace tells of a layer; bytes and operations are per sample, weights in all."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def input_bytes(self) -> float: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def flops(self) -> float: ...
    @property
    def row_bytes(self) -> float: ...


def roofline_profile(
    layers: Sequence[LayerFigures], cluster: Cluster, batch_size: int, model: str = "model"
) -> Profile:
    """For all types of the cluster. Raises InputError for one without ``hardware``."""
    for index, entry in enumerate(cluster.types):
        if entry.hardware is None:
            fix = "name the type in the catalogue with 'catalog', or give its hardware"
            raise InputError(f"cluster.types[{index}].hardware", f"is missing: {fix}")
    after = [layer.input_bytes for layer in layers[1:]] + [0.0]
    entries = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "input_bytes": layer.input_bytes,
            "weight_bytes": layer.weight_bytes,
            "on": {
                entry.name: _on(layer, made, entry.hardware, batch_size, first=index == 0)
                for entry in cluster.types
                if entry.hardware is not None
            },
        }
        for index, (layer, made) in enumerate(zip(layers, after, strict=True))
    ]
    document = {"model": model, "batch_size": batch_size, "layers": entries, "source": SOURCE}
    return Profile.parse(document, "profile")


def _on(
    layer: LayerFigures, output_bytes: float, unit: Hardware, batch_size: int, *, first: bool
) -> dict[str, Any]:
    weights = 0 if layer.kind == "embedding" else layer.weight_bytes  # rows are the servers'
    touched = batch_size * (layer.input_bytes + layer.row_bytes + output_bytes) + weights
    arithmetic = batch_size * layer.flops / (unit.peak_flops * unit.efficiency)
    read = batch_size * layer.input_bytes / unit.link_bytes_per_s if first else 0.0
    rows = _BOTH_WAYS * batch_size * layer.row_bytes / unit.link_bytes_per_s
    return {
        "compute_s": _PASSES * max(arithmetic, touched / unit.memory_bytes_per_s),
        "comm_s": read + rows,
        "alpha": unit.alpha,
        "beta": unit.beta,
        "transfer_s": _BOTH_WAYS * batch_size * layer.input_bytes / unit.link_bytes_per_s,
        "sync_s": _BOTH_WAYS * weights / unit.link_bytes_per_s,
    }
