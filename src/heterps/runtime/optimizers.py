"""How dense weights change: torch's optimizers, learning rates over a run, and clipping."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heterps.job.training import OptimizerSpec, ScheduleSpec
from heterps.models.chain import Chain

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
# Where torch changes all weights in one call.
_FUSED = {
    "sgd": ("cpu", "cuda", "xpu"),
    "adam": ("cpu", "cuda", "xpu"),
    "adamw": ("cpu", "cuda", "xpu"),
    "adagrad": ("cpu",),
}


def _leave_the_compiler_out() -> None:
    """Optimizers tell torch's compiler to keep away from some of their methods, and load it for
    that, which takes a process two seconds. Nothing here is compiled: the methods are called as
    they are, and so is ``step`` by ``take_step``."""
    for method in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(getattr(Optimizer, method), "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            setattr(plain, "__dynamo_disable", plain)


_leave_the_compiler_out()


def make_optimizer(spec: OptimizerSpec, parameters: Sequence[nn.Parameter]) -> Optimizer:
    """The optimizer of the job for these weights, of which there is one at least."""
    options = spec.options()
    if all(weight.device.type in _FUSED.get(spec.name, ()) for weight in parameters):
        options["fused"] = True
    return OPTIMIZERS[spec.name](parameters, lr=spec.lr, **options)  # type: ignore[call-arg]


def take_step(optimizer: Optimizer) -> None:
    """One step by the gradients that are there."""
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def learning_rate_factor(schedule: ScheduleSpec, batch: int, total: int) -> float:
    """What learning rates are multiplied with in batch ``batch`` of a run of ``total`` batches:
    positive in the first one, and ``floor`` past the last.
    """
    if batch < schedule.warmup:
        return (batch + 1) / schedule.warmup
    if schedule.kind == "constant":
        return 1.0
    falling = (schedule.total or total) - schedule.warmup
    share = min(1.0, (batch - schedule.warmup) / falling) if falling > 0 else 1.0
    left = 1 - share if schedule.kind == "linear" else (1 + math.cos(math.pi * share)) / 2
    return schedule.floor + (1 - schedule.floor) * left


def clip_layers(chain: Chain, max_norm: float) -> None:
    """Shrink the gradients of each layer's weights, taken together, to an L2 norm of at most
    ``max_norm``. What a layer gets depends on that layer alone, and so not on the plan.
    """
    for _, layer in chain.layers:
        weights = [weight for weight in layer.parameters() if weight.grad is not None]
        if weights:
            nn.utils.clip_grad_norm_(weights, max_norm)


def clip_rows(gradients: Tensor, max_norm: float) -> Tensor:
    """The gradients of rows [rows, dim], each shrunk to an L2 norm of at most ``max_norm``."""
    norms: Tensor = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    return gradients * (max_norm / norms.clamp(min=max_norm))
