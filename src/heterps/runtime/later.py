"""Gradients of weights, worked out after those of inputs: for the latter somebody waits.

Backward through a linear layer makes two products of equal size. That for the layer's input has to
be there before the layer below it, the stage before, or the parameter servers can go on; that for
its weights is needed only when the batch is committed. So a stage first goes through all its layers
for the gradients of inputs, hands those on, and makes the products for weights when it would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class LaterGradients:
    """Of the plain linear layers of ``model``, where nothing else looks at what they do; all other
    weights have their gradients when backward ends."""

    def __init__(self, model: nn.Module) -> None:
        # Whoever has made another class or another forward of it means something by that.
        plain = [each for each in model.modules() if type(each) is nn.Linear]
        layers = [layer for layer in plain if "forward" not in layer.__dict__]
        self._forwards = [(layer.__dict__, partial(self._forward, layer)) for layer in layers]
        self._due: dict[int, list[tuple[Tensor, Tensor | None, Tensor, Tensor]]] = {}
        self._waits: int | None = None

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """Of what goes forward inside of this. The layers are changed rather than what torch calls
        for them: that would be asked about every operation of the model, some 10 µs each."""
        for names, forward in self._forwards:
            names["forward"] = forward
        try:
            yield
        finally:
            for names, _ in self._forwards:
                del names["forward"]

    def _forward(self, layer: nn.Linear, inputs: Tensor) -> Tensor:
        weight, bias = layer.weight, layer.bias
        if not _can_wait(inputs, weight, bias):
            return linear(inputs, weight, bias)
        apply: Callable[..., Tensor] = _Linear.apply
        return apply(inputs, weight, bias, self)

    @contextmanager
    def waiting(self, number: int) -> Iterator[None]:
        """Around the stage's own backward of a micro-batch: any other has all gradients at once."""
        self._waits = number
        try:
            yield
        finally:
            self._waits = None

    def work_out(self, number: int) -> None:
        """All that are due for a micro-batch, into the ``grad`` of the weights, in the order of
        backward."""
        for weight, bias, inputs, gradient in self._due.pop(number, ()):
            _add(weight, gradient.t().mm(inputs))
            if bias is not None:
                _add(bias, gradient.sum(0))

    def take(self, weight: Tensor, bias: Tensor | None, inputs: Tensor, gradient: Tensor) -> bool:
        """Whether it is worked out later."""
        if self._waits is None:
            return False
        self._due.setdefault(self._waits, []).append((weight, bias, inputs, gradient))
        return True


def _can_wait(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Plain tensors of one type whose graph is built and looked at by nobody but autograd."""
    own = [weight] if bias is None else [weight, bias]
    return (
        torch.is_grad_enabled()
        and all(_is_plain(each, inputs) for each in own)
        and type(inputs) is Tensor
        and inputs.layout is torch.strided
        and not inputs.is_complex()
        and not torch.is_autocast_enabled(inputs.device.type)
        and not torch._C._are_functorch_transforms_active()
        and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    )


def _is_plain(weight: Tensor, inputs: Tensor) -> bool:
    """A leaf that nobody has hooks on."""
    hooks = weight._backward_hooks or weight._post_accumulate_grad_hooks
    known = type(weight) in (Tensor, nn.Parameter)
    alike = weight.dtype == inputs.dtype
    return known and alike and weight.is_leaf and weight.requires_grad and not hooks


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, later: LaterGradients
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.weight, ctx.bias, ctx.later = weight, bias, later
        return linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        onward = gradient.matmul(weight) if ctx.needs_input_grad[0] else None
        flat = gradient.reshape(-1, gradient.shape[-1])
        rows = inputs.reshape(-1, inputs.shape[-1])
        if ctx.later.take(ctx.weight, ctx.bias, rows, flat):
            return onward, None, None, None
        return onward, flat.t().mm(rows), None if ctx.bias is None else flat.sum(0), None


def _add(weight: Tensor, gradient: Tensor) -> None:
    if weight.grad is None:
        weight.grad = gradient
    else:
        weight.grad += gradient
