"""A trained model as an ordinary torch module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterps.models.batch import PREDICTION, Batch
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.rows import RowSource, rows_of


class Predictor(nn.Module):
    """Maps a batch to predictions, one a sample; rows come from ``source``.

    Its ``state_dict`` is the chain's, by layer name. Rows are not part of it. ``seed`` is for
    models that draw candidates.
    """

    def __init__(self, chain: Chain, source: RowSource, seed: int = 0) -> None:
        super().__init__()
        for name, layer in chain.layers:
            self.add_module(name, layer)
        # In a tuple, so that torch does not list the layers a second time.
        self._held = (chain, source)
        self.seed = seed
        self.eval()

    def forward(self, batch: Batch) -> Tensor:
        """The predictions alone."""
        return self.everything(batch)[PREDICTION]

    def everything(self, batch: Batch, micro_batch: int = 0) -> dict[str, Tensor]:
        """All that the layers make, such as ``rank`` beside ``prediction``; ``micro_batch`` tells
        the draws of one call from those of another."""
        chain, source = self._held
        context = Context(self.seed, micro_batch, training=False)
        batch = {name: self._as_weights(tensor) for name, tensor in batch.items()}
        with torch.no_grad():
            rows = rows_of(chain.ask(batch, source, context))
            made: dict[str, Tensor] = chain(batch, rows, context)
        return made

    def _as_weights(self, tensor: Tensor) -> Tensor:
        """Data are in single precision, whatever the weights are."""
        weight = next(self.parameters(), None)
        if weight is None or not tensor.is_floating_point():
            return tensor
        return tensor.to(weight.device, weight.dtype)
