"""Which of its threads a worker computes with.

Torch shares out whatever has 32,768 numbers or more, and it is done when the last thread is. Where
servers and readers use the same cores, one of the threads is put aside now and then, and the others
wait for it: with batches of 512 on two cores, a step of Adam took 2.6 ms that one thread makes in
0.5. So where all else that a stage does with a micro-batch is small, products of matrices alone are
shared out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from heterps.models.chain import Chain
from heterps.models.embedding import SparseEmbedding
from heterps.models.kinds import kind_of
from heterps.models.layers import Apply, Concat, Cosine, Dropout, LogLoss

_SMALL = 1 << 18  # numbers, over which one thread passes in less than 0.1 ms
_SMALL_STEP = 1 << 20  # weights, whose step takes one thread about a millisecond
_LARGE_PRODUCT = 1 << 22  # multiplications, which take one thread about 0.1 ms
_LIGHT = (Apply, Concat, Cosine, Dropout, LogLoss, nn.Sequential)
_LIGHT_KINDS = ("relu", "norm", "dropout", "concat", "cosine")

Use = AbstractContextManager[object]
_AS_IT_IS: Use = nullcontext()


class Threads:
    """``stage`` is for a stage's work on a micro-batch, ``product`` for what is shared out within
    it all the same, ``step`` for the change of its weights. By default all is left to torch."""

    def __init__(self, most: int = 1, *, stage: int | None = None, step: int | None = None) -> None:
        few = most if stage is None else stage
        self.stage = _use(few, most)
        self.step = _use(most if step is None else step, most)
        self._product = _use(most, few)

    @classmethod
    def of(cls, chain: Chain, samples: int, most: int, *, bags: bool = False) -> Threads:
        """``samples`` in a micro-batch, ``most`` threads; with ``bags`` a sample may have any
        number of ids in a slot."""
        if most == 1 or any(weight.device.type != "cpu" for weight in chain.parameters()):
            return cls(most)
        weights = sum(weight.numel() for weight in chain.trained.values())
        width = None if bags else _width(chain)
        small = width is not None and samples * width <= _SMALL
        return cls(most, stage=1 if small else most, step=1 if weights <= _SMALL_STEP else most)

    def product(self, samples: int, weight: torch.Tensor) -> Use:
        """For what a linear layer makes of so many samples, or one of its gradients."""
        return self._product if samples * weight.numel() >= _LARGE_PRODUCT else _AS_IT_IS


class InThreads:
    """So many threads inside, and as many as before after that."""

    def __init__(self, count: int) -> None:
        self._count = self._before = count

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(self._count)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._before)


def _use(count: int, otherwise: int) -> Use:
    return _AS_IT_IS if count == otherwise else InThreads(count)


def _width(chain: Chain) -> int | None:
    """The most numbers of a sample that a layer takes or makes; None where that is not known, or
    one of them may do more than pass over its numbers and make products."""
    widths: list[int] = []
    for _, layer in chain.layers:
        for part in layer.modules():
            if type(part) is nn.Linear and _is_taken_over(part):
                widths += [part.in_features, part.out_features]
            elif type(part) is SparseEmbedding and part.pools:
                widths.append(part.dim * len(part.slots))
            elif not _is_light(part):
                return None
    return max(widths, default=None)


def _is_taken_over(layer: nn.Linear) -> bool:
    """By ``LaterGradients``, which shares out its products."""
    return "forward" not in layer.__dict__ and all(w.requires_grad for w in layer.parameters())


def _is_light(part: nn.Module) -> bool:
    if type(part) in _LIGHT:
        return True
    return type(part).__module__.startswith("torch.nn.") and kind_of(part) in _LIGHT_KINDS
