"""Gradients of weights, worked out after those of inputs: for the latter somebody waits.

Backward through a linear layer makes two products of equal size. That for the layer's input has to
be there before the layer below it, the stage before, or the parameter servers can go on; that for
its weights is needed only when the batch is committed. So a stage first goes through all its layers
for the gradients of inputs, hands those on, and makes the products for weights when it would wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from heterps.runtime.products import input_gradient, outputs, weight_gradient
from heterps.runtime.threads import Threads

_CHANGED = (
    "what a linear layer was given has been changed in place since, before the gradients of its "
    "weights were made; give the layer a copy (.clone()) of it"
)


class _Due(NamedTuple):
    """One product that is left to make."""

    weight: Tensor
    bias: Tensor | None
    inputs: Tensor
    gradient: Tensor
    versions: tuple[int, int]  # of the two before


class LaterGradients:
    """Of the plain linear layers of ``model``, where nothing else looks at what they do; all other
    weights have their gradients when backward ends."""

    def __init__(self, model: nn.Module, threads: Threads | None = None) -> None:
        # Whoever has made another class or another forward of it means something by that.
        plain = [each for each in model.modules() if type(each) is nn.Linear]
        layers = [layer for layer in plain if "forward" not in layer.__dict__]
        self._forwards = [(layer.__dict__, partial(self._forward, layer)) for layer in layers]
        self._state = [*model.parameters(), *model.buffers()]
        self._places: set[int] = set()
        self._due: dict[int, list[_Due]] = {}
        self._sums: dict[Tensor, Tensor] = {}
        self._waits: int | None = None
        self.threads = threads or Threads()

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """Of what goes forward inside of this. The layers are changed rather than what torch calls
        for them: that would be asked about every operation of the model, some 10 µs each."""
        self._places = {_place(each) for each in self._state}
        for names, forward in self._forwards:
            names["forward"] = forward
        try:
            yield
        finally:
            for names, _ in self._forwards:
                del names["forward"]

    def _forward(self, layer: nn.Linear, /, input: Tensor) -> Tensor:
        weight, bias = layer.weight, layer.bias
        # What the model keeps may be changed before the gradients are made, by a step or by itself.
        if not _can_wait(input, weight, bias) or _place(input) in self._places:
            return linear(input, weight, bias)
        apply: Callable[..., Tensor] = _Linear.apply
        return apply(input, weight, bias, self)

    @contextmanager
    def waiting(self, number: int) -> Iterator[None]:
        """Around the stage's own backward of a micro-batch: any other has all gradients at once."""
        self._waits = number
        try:
            yield
        finally:
            self._waits = None

    def work_out(self, number: int) -> None:
        """All that are due for a micro-batch, in the order of backward; ``settle`` follows."""
        with torch.no_grad():
            for due in self._due.pop(number, ()):
                if due.versions != _versions(due.inputs, due.gradient):
                    raise RuntimeError(_CHANGED)
                with self.threads.product(len(due.inputs), due.weight):
                    made = weight_gradient(due.gradient, due.inputs)
                self._add(due.weight, made)
                if due.bias is not None:
                    self._add(due.bias, due.gradient.sum(0))

    def settle(self, weights: Iterable[Tensor]) -> None:
        """Adds what was worked out to the ``grad`` of these, when all of a batch is there: a weight
        that is used elsewhere as well has a part in it already, and in which order parts are added
        must not depend on who waited when."""
        for weight in weights:
            made = self._sums.pop(weight, None)
            if made is not None and weight.grad is not None:
                weight.grad += made
            elif made is not None:
                weight.grad = made

    def take(self, weight: Tensor, bias: Tensor | None, inputs: Tensor, gradient: Tensor) -> bool:
        """Whether it is worked out later."""
        if self._waits is None:
            return False
        due = _Due(weight, bias, inputs, gradient, _versions(inputs, gradient))
        self._due.setdefault(self._waits, []).append(due)
        return True

    def _add(self, weight: Tensor, gradient: Tensor) -> None:
        before = self._sums.setdefault(weight, gradient)
        if before is not gradient:
            before += gradient


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _versions(inputs: Tensor, gradient: Tensor) -> tuple[int, int]:
    return inputs._version, gradient._version


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
        with later.threads.product(_samples(inputs), weight):
            made = outputs(inputs, weight, bias)
        # Of more than two dimensions it is a view, which the next layer may not change in place.
        return torch.ops.aten._unsafe_view(made, made.shape) if made._is_view() else made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        with ctx.later.threads.product(_samples(inputs), weight):
            onward = input_gradient(gradient, weight) if ctx.needs_input_grad[0] else None
        flat, rows = _flat(gradient), _flat(inputs)
        if ctx.later.take(ctx.weight, ctx.bias, rows.detach(), flat):
            return onward, None, None, None
        bias = None if ctx.bias is None else flat.sum(0)
        return onward, weight_gradient(flat, rows), bias, None


def _flat(tensor: Tensor) -> Tensor:
    """As a matrix."""
    return tensor.flatten(0, -2) if tensor.dim() > 1 else tensor[None]


def _samples(inputs: Tensor) -> int:
    """How many rows a linear layer takes them for."""
    return inputs.numel() // max(inputs.shape[-1], 1)
