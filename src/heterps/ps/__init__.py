"""The parameter server: tables of rows by 64-bit id, with the optimizer inside.

What is listed in ``__all__`` is public, and loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heterps.ps.dense import DenseTensor
    from heterps.ps.initial import INITIALIZERS, Constant, Initializer, Normal, Uniform, Zeros
    from heterps.ps.rules import RULES, Adagrad, Adam, Ftrl, RowwiseAdagrad, Rule, Sgd
    from heterps.ps.snapshots import Snapshot, open_snapshot
    from heterps.ps.table import SparseTable

_PLACES = {
    "heterps.ps.dense": ("DenseTensor",),
    "heterps.ps.initial": (
        "INITIALIZERS",
        "Constant",
        "Initializer",
        "Normal",
        "Uniform",
        "Zeros",
    ),
    "heterps.ps.rules": ("RULES", "Adagrad", "Adam", "Ftrl", "RowwiseAdagrad", "Rule", "Sgd"),
    "heterps.ps.snapshots": ("Snapshot", "open_snapshot"),
    "heterps.ps.table": ("SparseTable",),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "INITIALIZERS",
    "RULES",
    "Adagrad",
    "Adam",
    "Constant",
    "DenseTensor",
    "Ftrl",
    "Initializer",
    "Normal",
    "RowwiseAdagrad",
    "Rule",
    "Sgd",
    "Snapshot",
    "SparseTable",
    "Uniform",
    "Zeros",
    "open_snapshot",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'heterps.ps' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
