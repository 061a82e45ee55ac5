"""Models as chains of named layers, which know nothing of stages, workers or servers.

What is listed in ``__all__`` is what a model of one's own is written with, and how a trained one is
used. It is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heterps.lazy import lazy_names

if TYPE_CHECKING:
    from heterps.models.batch import Batch
    from heterps.models.chain import Chain
    from heterps.models.context import Context
    from heterps.models.embedding import SparseEmbedding
    from heterps.models.layers import (
        Apply,
        Concat,
        Cosine,
        Dropout,
        Layer,
        LogLoss,
        Pool,
        RowLayer,
        mean_loss,
    )
    from heterps.models.load import load_model
    from heterps.models.local_rows import LocalRows, LocalTable
    from heterps.models.predictor import Predictor
    from heterps.models.rows import Rows
    from heterps.models.sampled import SampledEmbedding, SampledSoftmax, Sampler
    from heterps.models.zoo import ZOO

_PLACES = {
    "heterps.models.batch": ("Batch",),
    "heterps.models.chain": ("Chain",),
    "heterps.models.context": ("Context",),
    "heterps.models.embedding": ("SparseEmbedding",),
    "heterps.models.layers": (
        "Apply",
        "Concat",
        "Cosine",
        "Dropout",
        "Layer",
        "LogLoss",
        "Pool",
        "RowLayer",
        "mean_loss",
    ),
    "heterps.models.load": ("load_model",),
    "heterps.models.local_rows": ("LocalRows", "LocalTable"),
    "heterps.models.predictor": ("Predictor",),
    "heterps.models.rows": ("Rows",),
    "heterps.models.sampled": ("SampledEmbedding", "SampledSoftmax", "Sampler"),
    "heterps.models.zoo": ("ZOO",),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "ZOO",
    "Apply",
    "Batch",
    "Chain",
    "Concat",
    "Context",
    "Cosine",
    "Dropout",
    "Layer",
    "LocalRows",
    "LocalTable",
    "LogLoss",
    "Pool",
    "Predictor",
    "RowLayer",
    "Rows",
    "SampledEmbedding",
    "SampledSoftmax",
    "Sampler",
    "SparseEmbedding",
    "load_model",
    "mean_loss",
]

__getattr__, __dir__ = lazy_names("heterps.models", _MODULE_OF)
