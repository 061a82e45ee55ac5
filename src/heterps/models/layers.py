"""What a layer is, and the layers that models are put together from.

A plain module (``nn.Linear``, ``nn.ReLU``) maps the tensor ``x`` to a new ``x``. Whatever reads or
makes other names is a ``Layer``: it gets the batch and returns the names that it makes, and those
alone: a name that it does not touch must not be read, or it has to travel to every stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from heterps.errors import InputError, ModelError
from heterps.models.batch import LABEL, LOSS, MAIN, PREDICTION, WEIGHT, Batch, offsets_name
from heterps.models.context import Context
from heterps.models.rows import Rows


class Layer(nn.Module, ABC):
    """Maps a batch to the names that it makes.

    It has to cope with an empty batch. Random draws come from ``context.generator()``, or from
    torch's own generators, which the chain seeds for every layer that may use them.
    """

    draws: ClassVar[bool] = True  # from torch's own generators, as far as it is known
    kind: ClassVar[str | None] = None  # what the planner calls it; None: that of its largest module

    @abstractmethod
    def forward(self, batch: Batch, context: Context) -> Batch:
        """The names that the layer makes."""


class RowLayer(nn.Module, ABC):
    """A layer that works on rows of a sparse table, of which it owns none."""

    draws: ClassVar[bool] = True  # from torch's own generators, as far as it is known
    kind: ClassVar[str] = "embedding"

    def __init__(self, table: str, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise InputError("dim", f"expected 1 or more, got {dim}")
        self.table = table
        self.dim = dim

    @abstractmethod
    def ids(self, batch: Batch, context: Context) -> Tensor:
        """All ids whose rows the layer needs: int64, in any order, repeated as it likes.

        It may read names of the data alone: ids are asked for before earlier layers have run.
        Draws come from ``context.generator()``.
        """

    @abstractmethod
    def forward(self, batch: Batch, rows: Rows, context: Context) -> Batch:
        """The names that the layer makes; ``rows.inverse`` is in the order of ``ids``."""


class Apply(Layer):
    """A plain module on another tensor than ``x``."""

    draws = False  # itself; what it holds is asked too

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name

    def forward(self, batch: Batch, context: Context) -> Batch:
        return {self.name: self.module(batch[self.name])}


class Concat(Layer):
    """Puts tensors of one row a sample side by side."""

    draws = False
    kind = "concat"

    def __init__(self, names: Sequence[str], output: str = MAIN) -> None:
        super().__init__()
        self.names = tuple(names)
        self.output = output

    def forward(self, batch: Batch, context: Context) -> Batch:
        return {self.output: torch.cat([batch[name] for name in self.names], dim=1)}


class Dropout(Layer):
    """Like ``nn.Dropout``, with the same draws on every device."""

    draws = False
    kind = "dropout"

    def __init__(self, p: float = 0.5, name: str = MAIN) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise InputError("p", f"expected a share in [0, 1), got {p!r}")
        self.p = p
        self.name = name

    def forward(self, batch: Batch, context: Context) -> Batch:
        x = batch[self.name]
        if not context.training or self.p == 0:
            return {self.name: x}
        kept = torch.rand(x.shape, generator=context.generator()) >= self.p
        return {self.name: x * kept.to(x.device, x.dtype) / (1 - self.p)}


class Pool(Layer):
    """One row a sample from bags of rows: their sum or mean, zeros for an empty bag."""

    draws = False
    kind = "pool"

    def __init__(self, name: str, mode: Literal["sum", "mean"] = "sum") -> None:
        super().__init__()
        self.name = name
        self.mode = mode

    def forward(self, batch: Batch, context: Context) -> Batch:
        rows, offsets = batch[self.name], batch[offsets_name(self.name)]
        places = torch.arange(len(rows), device=rows.device)
        pooled = nn.functional.embedding_bag(
            places, rows, offsets, mode=self.mode, include_last_offset=True
        )
        return {self.name: pooled}


class Cosine(Layer):
    """How alike two tensors are, times ``scale``: [n, 1] in ``x``."""

    draws = False
    kind = "cosine"

    def __init__(self, left: str, right: str, scale: float = 1.0) -> None:
        super().__init__()
        self.left, self.right = left, right
        self.scale = scale

    def forward(self, batch: Batch, context: Context) -> Batch:
        alike = nn.functional.cosine_similarity(batch[self.left], batch[self.right], dim=1)
        return {MAIN: self.scale * alike[:, None]}


TASKS = ("binary", "sampled")  # what predictions may mean, as an attribute of the last layer says


class LogLoss(Layer):
    """Logistic loss of the logits ``x``, labels being 0 or 1; predictions are probabilities, and
    made in training too, so that one can tell how well samples were told before they were learnt.
    """

    draws = False
    kind = "loss"
    task: ClassVar[str] = "binary"

    def forward(self, batch: Batch, context: Context) -> Batch:
        x = batch[MAIN]
        if x.dim() != 2 or x.shape[1] != 1:
            raise ModelError(
                f"layer '{context.layer}'",
                f"expected one logit a sample in 'x', got {list(x.shape)}; "
                "let the layer before it have one output",
            )
        logits = x[:, 0]
        prediction = torch.sigmoid(logits.detach() if context.training else logits)
        if not context.training:
            return {PREDICTION: prediction}
        label = batch[LABEL].to(logits.dtype)
        losses = nn.functional.binary_cross_entropy_with_logits(logits, label, reduction="none")
        return {LOSS: mean_loss(losses, batch), PREDICTION: prediction}


def mean_loss(losses: Tensor, batch: Batch) -> Tensor:
    """The mean over samples of weight × loss: divided by their number, not by their weight, so that
    micro-batches put together by their share of samples give the loss of the whole batch. 0 for an
    empty batch, and then all gradients are 0 too.
    """
    if WEIGHT in batch:
        losses = losses * batch[WEIGHT].to(losses.dtype)
    return losses.sum() / max(len(losses), 1)
