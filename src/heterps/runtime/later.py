"""Gradients of weights, worked out after those of inputs: for the latter somebody waits.

Backward through a linear layer makes two products of equal size. That for the layer's input has to
be there before the layer below it, the stage before, or the parameter servers can go on; that for
its weights is needed only when the batch is committed. So a stage first goes through all its layers
for the gradients of inputs, hands those on, and makes the products for weights while others work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode


class LaterGradients:
    """Of the linear layers of a stage whose weights are leaves; others have theirs when backward
    ends."""

    def __init__(self) -> None:
        self._due: list[tuple[Tensor, Tensor | None, Tensor, Tensor]] = []

    def taken_over(self) -> TorchFunctionMode:
        """Of what goes forward inside of this."""
        return _Mode(self._due)

    def work_out(self) -> None:
        """All that are due, into the ``grad`` of the weights, in the order of backward."""
        for weight, bias, inputs, gradient in self._due:
            _add(weight, gradient.t().mm(inputs))
            if bias is not None:
                _add(bias, gradient.sum(0))
        self._due.clear()


class _Mode(TorchFunctionMode):
    def __init__(self, due: list[Any]) -> None:
        super().__init__()
        self._due = due

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is linear and not kwargs and _is_leaf(*args[1:]):
            apply: Callable[..., Tensor] = _Linear.apply
            return apply(*args, *([None] * (3 - len(args))), self._due)
        return func(*args, **(kwargs or {}))


def _is_leaf(weight: Tensor, bias: Tensor | None = None) -> bool:
    own = [weight] if bias is None else [weight, bias]
    return torch.is_grad_enabled() and all(each.is_leaf and each.requires_grad for each in own)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, due: list[Any]
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.weight, ctx.bias, ctx.due = weight, bias, due
        return linear(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        inputs, weight = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        ctx.due.append((ctx.weight, ctx.bias, inputs.reshape(-1, inputs.shape[-1]), flat))
        onward = gradient.matmul(weight) if ctx.needs_input_grad[0] else None
        return onward, None, None, None


def _add(weight: Tensor, gradient: Tensor) -> None:
    if weight.grad is None:
        weight.grad = gradient
    else:
        weight.grad += gradient
