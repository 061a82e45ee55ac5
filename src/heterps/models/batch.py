"""What flows along a chain: tensors by name.

The data gives ``dense`` [n, columns], ``label`` and ``weight`` [n], and every sparse slot under its
own name: ids [n], or for a slot with several values a sample ids [values] with their
``<slot>.offsets`` [n + 1]. Layers add names of their own; ``x`` is the one that plain modules work
on. A batch may be empty (n = 0).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from heterps.errors import ModelError

Batch = Mapping[str, Tensor]

MAIN = "x"
LABEL = "label"
WEIGHT = "weight"
DENSE = "dense"
LOSS = "loss"
PREDICTION = "prediction"
_OFFSETS = ".offsets"


def offsets_name(name: str) -> str:
    """Where the bags of a name with several values a sample begin."""
    return name + _OFFSETS


def samples_of(batch: Batch) -> int:
    """How many samples a batch from the data holds."""
    for name, tensor in batch.items():
        if name.endswith(_OFFSETS):
            return len(tensor) - 1
        if offsets_name(name) not in batch:
            return len(tensor)
    raise ModelError("batch", "is without a single tensor; expected dense, label or slots")
