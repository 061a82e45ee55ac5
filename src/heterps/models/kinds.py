"""The kind of a layer, in the words that the planner knows."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.loss import _Loss
from torch.nn.modules.normalization import CrossMapLRN2d, LocalResponseNorm
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

OTHER = "other"

_ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU,
    nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.Sigmoid, nn.LogSigmoid, nn.Tanh, nn.Hardtanh,
    nn.Hardswish, nn.Hardsigmoid, nn.GLU,
)  # fmt: skip
_KINDS: tuple[tuple[str, tuple[type[nn.Module], ...]], ...] = (
    ("fc", (nn.Linear, nn.Bilinear)),
    ("relu", _ACTIVATIONS),
    ("norm", (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _BatchNorm, LocalResponseNorm)),
    ("norm", (CrossMapLRN2d,)),
    ("attention", (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)),
    ("pool", (_MaxPoolNd, _AvgPoolNd, _AdaptiveMaxPoolNd, _AdaptiveAvgPoolNd)),
    ("concat", (nn.Flatten, nn.Unflatten)),
    ("dropout", (_DropoutNd,)),
    ("cosine", (nn.CosineSimilarity, nn.PairwiseDistance)),
    ("softmax", (nn.Softmax, nn.LogSoftmax, nn.Softmin)),
    ("loss", (_Loss,)),
)


def kind_of(layer: nn.Module) -> str:
    """What the layer says, what its type is known for, or the kind of its largest part."""
    said = getattr(layer, "kind", None)
    if isinstance(said, str):
        return said
    for kind, types in _KINDS:
        if isinstance(layer, types):
            return kind
    parts = sorted(layer.children(), key=_weights, reverse=True)  # stable: the first of the largest
    return next((kind for kind in map(kind_of, parts) if kind != OTHER), OTHER)


def has_batch_statistics(layer: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in layer.modules())


def _weights(layer: nn.Module) -> int:
    return sum(parameter.numel() for parameter in layer.parameters())
