"""Which modules may draw from torch's own generators."""

from __future__ import annotations

from torch import nn

# Modules that compute the same from the same input, or only hold others.
_STEADY: tuple[type[nn.Module], ...] = (
    *(nn.Linear, nn.Bilinear, nn.Identity, nn.Flatten, nn.Unflatten, nn.Embedding, nn.EmbeddingBag),
    *(nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm1d),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Hardsigmoid, nn.Hardswish, nn.Softmax, nn.LogSoftmax),
    *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict),
)


def may_draw(layer: nn.Module) -> bool:
    """Whether a layer, or a module in it, is not known to leave torch's generators alone. A class
    of one's own says so with ``draws = False``."""
    return any(_may_draw(module) for module in layer.modules())


def _may_draw(module: nn.Module) -> bool:
    said = getattr(type(module), "draws", None)
    return type(module) not in _STEADY if said is None else bool(said)
