"""The parameter server: tables of rows by 64-bit id, with the optimizer inside.

What is listed in ``__all__`` is public, and loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heterps.lazy import lazy_names

if TYPE_CHECKING:
    from heterps.ps.client import Client
    from heterps.ps.dense import DenseTensor
    from heterps.ps.initial import INITIALIZERS, Constant, Initializer, Normal, Uniform, Zeros
    from heterps.ps.processes import start_servers
    from heterps.ps.protocol import DenseSpec, TableSpec
    from heterps.ps.rules import RULES, Adagrad, Adam, Ftrl, RowwiseAdagrad, Rule, Sgd
    from heterps.ps.server import Server
    from heterps.ps.snapshots import Snapshot, open_snapshot
    from heterps.ps.table import SparseTable

_PLACES = {
    "heterps.ps.client": ("Client",),
    "heterps.ps.dense": ("DenseTensor",),
    "heterps.ps.initial": (
        "INITIALIZERS",
        "Constant",
        "Initializer",
        "Normal",
        "Uniform",
        "Zeros",
    ),
    "heterps.ps.processes": ("start_servers",),
    "heterps.ps.protocol": ("DenseSpec", "TableSpec"),
    "heterps.ps.rules": ("RULES", "Adagrad", "Adam", "Ftrl", "RowwiseAdagrad", "Rule", "Sgd"),
    "heterps.ps.server": ("Server",),
    "heterps.ps.snapshots": ("Snapshot", "open_snapshot"),
    "heterps.ps.table": ("SparseTable",),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "INITIALIZERS",
    "RULES",
    "Adagrad",
    "Adam",
    "Client",
    "Constant",
    "DenseSpec",
    "DenseTensor",
    "Ftrl",
    "Initializer",
    "Normal",
    "RowwiseAdagrad",
    "Rule",
    "Server",
    "Sgd",
    "Snapshot",
    "SparseTable",
    "TableSpec",
    "Uniform",
    "Zeros",
    "open_snapshot",
    "start_servers",
]

__getattr__, __dir__ = lazy_names("heterps.ps", _MODULE_OF)
