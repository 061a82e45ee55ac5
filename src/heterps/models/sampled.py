"""Softmax over a vocabulary too large to compute: against a few drawn items, corrected for how
likely each was to be drawn. The vocabulary's rows live in a sparse table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from heterps.errors import InputError, ModelError, UnknownNameError
from heterps.models.batch import LOSS, MAIN, PREDICTION, Batch, offsets_name
from heterps.models.context import Context
from heterps.models.embedding import expand
from heterps.models.layers import Layer, RowLayer, mean_loss
from heterps.models.rows import Rows

Distribution = Literal["uniform", "log_uniform"]
RANK = "rank"
_TARGET_ITEM, _TARGET_ROWS = "target.item", "target.rows"
_DRAWN_ITEMS, _DRAWN_ROWS = "drawn.item", "drawn.rows"


@dataclass(frozen=True)
class Sampler:
    """Draws items 0 … ``vocabulary`` − 1, with replacement. ``log_uniform`` prefers small numbers,
    as fits items that are numbered from the most frequent on."""

    vocabulary: int
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        if self.vocabulary < 2:
            raise InputError("vocabulary", f"expected 2 or more items, got {self.vocabulary}")
        if self.distribution not in get_args(Distribution):
            known = get_args(Distribution)
            raise UnknownNameError("distribution", "distribution", str(self.distribution), known)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        if self.distribution == "uniform":
            return torch.randint(self.vocabulary, (count,), generator=generator)
        share = torch.rand(count, dtype=torch.float64, generator=generator)
        items = torch.exp(share * math.log(self.vocabulary + 1)).long() - 1
        return items.clamp(0, self.vocabulary - 1)

    def log_probability(self, items: Tensor) -> Tensor:
        """The logarithm of how likely each item is to be drawn, float64."""
        if self.distribution == "uniform":
            return torch.full(items.shape, -math.log(self.vocabulary), dtype=torch.float64)
        number = items.double()
        share = torch.log1p(1 / (number + 1)) / math.log(self.vocabulary + 1)
        return share.log()


class SampledEmbedding(RowLayer):
    """The output rows of each sample's target and of items drawn for the whole micro-batch:
    ``negatives`` of them in training, ``candidates`` otherwise. An id counts as item
    id mod vocabulary; the rows of ``table`` go by item."""

    draws = False

    def __init__(
        self,
        target: str,
        sampler: Sampler,
        dim: int,
        table: str = "output",
        negatives: int = 64,
        candidates: int = 1000,
    ) -> None:
        super().__init__(table, dim)
        for name, count in (("negatives", negatives), ("candidates", candidates)):
            if count < 1:
                raise InputError(name, f"expected 1 or more, got {count}")
        self.target = target
        self.sampler = sampler
        self.negatives = negatives
        self.candidates = candidates

    def ids(self, batch: Batch, context: Context) -> Tensor:
        return torch.cat([self._targets(batch, context), self._drawn(batch, context)])

    def forward(self, batch: Batch, rows: Rows, context: Context) -> Batch:
        targets, drawn = self._targets(batch, context), self._drawn(batch, context)
        expanded = expand(rows)
        return {
            _TARGET_ITEM: targets,
            _TARGET_ROWS: expanded[: len(targets)],
            _DRAWN_ITEMS: drawn,
            _DRAWN_ROWS: expanded[len(targets) :],
        }

    def _targets(self, batch: Batch, context: Context) -> Tensor:
        if offsets_name(self.target) in batch:
            problem = f"slot '{self.target}' has several values a sample; a target is a single one"
            raise ModelError(f"layer '{context.layer}'", problem)
        return batch[self.target].remainder(self.sampler.vocabulary)

    def _drawn(self, batch: Batch, context: Context) -> Tensor:
        """None for no samples, so that no row is dated for nothing."""
        count = self.negatives if context.training else self.candidates
        wanted = count if len(batch[self.target]) else 0
        return self.sampler.draw(wanted, context.generator()).to(batch[self.target].device)


class SampledSoftmax(Layer):
    """Cross entropy of the target among the drawn items, ``x`` being scored against their rows.

    ``prediction`` is the target's probability among the drawn items, corrected in the same way;
    when it is not training, ``rank`` is the number of them that score as high or higher: recall@k
    is the share of samples with rank < k. A drawn item that is the target itself does not count.
    """

    draws = False
    kind = "softmax"
    task: ClassVar[str] = "sampled"

    def __init__(self, sampler: Sampler) -> None:
        super().__init__()
        self.sampler = sampler

    def forward(self, batch: Batch, context: Context) -> Batch:
        scores = self._scores(batch)
        logits = self._corrected(scores, batch)
        losses = torch.logsumexp(logits, dim=1) - logits[:, 0]
        prediction = torch.exp(-losses.detach())
        if context.training:
            return {LOSS: mean_loss(losses, batch), PREDICTION: prediction}
        rank = (scores[:, 1:] >= scores[:, :1]).sum(dim=1)
        return {PREDICTION: prediction, RANK: rank}

    def _scores(self, batch: Batch) -> Tensor:
        """[n, 1 + drawn]: of the target and of each drawn item, −∞ where that is the target."""
        x = batch[MAIN]
        target = (x * batch[_TARGET_ROWS]).sum(dim=1, keepdim=True)
        drawn = nn.functional.linear(x, batch[_DRAWN_ROWS])
        hit = batch[_TARGET_ITEM][:, None] == batch[_DRAWN_ITEMS][None, :]
        return torch.cat([target, drawn.masked_fill(hit, -math.inf)], dim=1)

    def _corrected(self, scores: Tensor, batch: Batch) -> Tensor:
        if self.sampler.distribution == "uniform":
            return scores  # the same correction for all changes nothing
        targets = self.sampler.log_probability(batch[_TARGET_ITEM].cpu())
        drawn = self.sampler.log_probability(batch[_DRAWN_ITEMS].cpu())
        both = torch.cat([targets[:, None], drawn.expand(len(targets), -1)], dim=1)
        return scores - both.to(scores.device, scores.dtype)
