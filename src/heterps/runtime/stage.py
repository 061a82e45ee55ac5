"""The layers of one stage: forward and backward of micro-batches, one change of weights a batch.

No processes and no sockets here: what arrives comes in as tensors, what goes on is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from heterps.models.batch import LOSS, Batch
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.rows import Asked, rows_of
from heterps.runtime.dense_update import DenseUpdate
from heterps.runtime.later import LaterGradients
from heterps.runtime.threads import Threads

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class Cut:
    """What crosses from one stage to the next: ``names`` forward, ``gradients`` of some back. Of
    both as many as there are: a layer may make a name in training or in prediction alone."""

    names: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()


@dataclass(frozen=True)
class MicroBatch:
    """``share`` is its part of the samples of its batch."""

    number: int
    batch: int
    share: float


@dataclass(frozen=True)
class RowGradients:
    """Of one layer in one micro-batch, for its table: ``part`` is (micro-batch, layer)."""

    table: str
    batch: int
    part: tuple[int, int]
    ids: Tensor
    values: Tensor


@dataclass
class _InFlight:
    """A micro-batch that has gone forward."""

    micro_batch: MicroBatch
    arrived: Batch
    outputs: Batch
    asked: Mapping[str, Asked]


class Stage:
    """``chain`` holds the stage's layers, ``first_layer`` is the number of the first in the model.

    ``before`` is the cut that input crosses (None: it comes from the data), ``after`` the one that
    output crosses (None: this stage ends in the loss). Micro-batches go forward and backward in the
    order that ``ReplicaProgram`` says; with ``stale`` a batch may go forward before the one ahead
    of it is committed, and each computes throughout with the weights that its forward began with.
    """

    def __init__(
        self,
        chain: Chain,
        first_layer: int,
        update: DenseUpdate,
        *,
        before: Cut | None = None,
        after: Cut | None = None,
        seed: int = 0,
        stale: bool = False,
        threads: Threads | None = None,
    ) -> None:
        self.chain = chain
        self._number = {name: first_layer + at for at, name in enumerate(chain.names)}
        self._update = update
        self._before = before or Cut()
        self._after = after
        self._seed = seed
        self._weights = _Weights(chain, stale)
        self._threads = threads or Threads()
        self._later = LaterGradients(chain, self._threads)
        self._shares: dict[int, float] = {}
        self._in_flight: dict[int, _InFlight] = {}

    def context(self, number: int, *, training: bool = True) -> Context:
        """What random draws of a micro-batch depend on."""
        return Context(self._seed, number, training)

    def forward(
        self, micro_batch: MicroBatch, arrived: Batch, asked: Mapping[str, Asked]
    ) -> dict[str, Tensor]:
        """What goes on to the next stage; of the last stage all that there is, ``loss`` too."""
        leaves = {
            name: arrived[name].detach().requires_grad_()
            for name in self._before.gradients
            if name in arrived
        }
        inputs = {**arrived, **{name: _changeable(leaf) for name, leaf in leaves.items()}}
        context = self.context(micro_batch.number)
        with self._threads.stage, self._later.taken_over():
            made = self._weights.run(micro_batch.batch, (inputs, rows_of(asked), context))
        outputs = self._onward(made)
        done = self._shares.get(micro_batch.batch, 0.0)
        self._shares[micro_batch.batch] = done + micro_batch.share
        self._in_flight[micro_batch.number] = _InFlight(micro_batch, leaves, outputs, asked)
        return {n: t.detach() if t.requires_grad else t for n, t in outputs.items()}

    def backward(self, number: int, arrived: Gradients) -> tuple[Gradients, list[RowGradients]]:
        """Takes the gradients of what went on, gives those of what came in, and those of rows;
        ``finish_backward`` follows, before the commit and in the same order."""
        flight = self._in_flight.pop(number)
        with self._threads.stage, self._later.waiting(number):
            self._go_back(flight, arrived)
        back = {name: _gradient_of(leaf) for name, leaf in flight.arrived.items()}
        rows = [self._of_rows(flight.micro_batch, *entry) for entry in flight.asked.items()]
        return back, rows

    def _go_back(self, flight: _InFlight, arrived: Gradients) -> None:
        if self._after is None:
            _backward(flight.outputs[LOSS] * flight.micro_batch.share)
            return
        sent = {n: flight.outputs[n] for n in self._after.gradients if n in flight.outputs}
        graded = {name: tensor for name, tensor in sent.items() if tensor.requires_grad}
        if graded:
            apply: Callable[..., Tensor] = _Given.apply
            _backward(apply([arrived[name] for name in graded], *graded.values()))

    def finish_backward(self, number: int) -> None:
        """The gradients of weights, which nobody else waits for."""
        with self._threads.stage:
            self._later.work_out(number)

    def commit(self, batch: int) -> None:
        """Sums the gradients of the batch over the replicas and changes the weights."""
        self._update.sum(self.collect(batch), self._shares.pop(batch, 0.0))
        self.step(batch)

    @property
    def sums(self) -> bool:
        """Whether its replicas wait for each other in a commit."""
        return self._update.sums

    @property
    def beside(self) -> bool:
        return self._update.beside

    def begin_commit(self, batch: int, ready: Callable[[], None]) -> Callable[[], None]:
        """The same in two steps, with later batches at work in between, where it can be done
        ``beside`` them: what this returns ends it, and waits for no other replica once ``ready``
        was called, by any thread."""
        gradients = self.collect(batch)
        self._weights.swap_gradients([None] * len(gradients))
        finish = self._update.begin(gradients, self._shares.pop(batch, 0.0), ready)

        def end() -> None:
            finish()
            later = self._weights.swap_gradients(gradients)
            self.step(batch)
            self._weights.swap_gradients(later)

        return end

    def collect(self, batch: int) -> list[Tensor]:
        """The gradients of a batch here, where the update will look for them."""
        self._later.settle(self._weights.of(batch))
        return self._weights.collect(batch)

    def step(self, batch: int) -> None:
        with self._threads.step:
            self._update.step(batch)

    def state(self) -> dict[str, Tensor]:
        """Weights by name, and what the next step depends on beside them."""
        return {**self.chain.state_dict(), **self._update.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Takes its own part of the state of a whole model."""
        self.chain.load_state_dict({name: state[name] for name in self.chain.state_dict()})
        self._update.load_state(state)

    def refresh(self) -> None:
        """Before validation: what others have made of the weights by now, where they are shared."""
        self._update.refresh()

    def predict(self, number: int, arrived: Batch, asked: Mapping[str, Asked]) -> dict[str, Tensor]:
        """Forward alone with the weights as they are: what goes on, or all that the last stage
        has and makes. Leaves no trace."""
        with torch.no_grad():
            made = self.chain(arrived, rows_of(asked), self.context(number, training=False))
        return self._onward(made)

    def _onward(self, made: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the next stage gets; of the last stage all."""
        if self._after is None:
            return made
        return {name: made[name] for name in self._after.names if name in made}

    def _of_rows(self, micro_batch: MicroBatch, layer: str, entry: Asked) -> RowGradients:
        part = (micro_batch.number, self._number[layer])
        table = self.chain.row_layers[layer].table
        values = _gradient_of(entry.rows.values)
        return RowGradients(table, micro_batch.batch, part, entry.ids, values)


class _Weights:
    """The weights that each open batch computes with. Where batches overlap each has its own copy:
    a step of the optimizer in between would give gradients of weights that were never used."""

    def __init__(self, chain: Chain, stale: bool) -> None:
        self._chain = chain
        self._trained = chain.trained
        self._stale = stale
        self._copies: dict[int, dict[str, Tensor]] = {}

    def run(self, batch: int, arguments: tuple[object, ...]) -> dict[str, Tensor]:
        if not self._stale:
            made: dict[str, Tensor] = self._chain(*arguments)
            return made
        if batch not in self._copies:
            self._copies[batch] = {
                name: weight.detach().clone().requires_grad_()
                for name, weight in self._trained.items()
            }
        return dict(functional_call(self._chain, self._copies[batch], arguments))

    def of(self, batch: int) -> Iterable[Tensor]:
        """Those that the gradients of a batch are at."""
        return (self._copies.get(batch, {}) if self._stale else self._trained).values()

    def collect(self, batch: int) -> list[Tensor]:
        """The gradients of a batch, in the place where the optimizer looks for them."""
        copies = self._copies.pop(batch, {})
        collected = []
        for name, weight in self._trained.items():
            if self._stale:
                weight.grad = _gradient_of(copies[name]) if copies else None
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            collected.append(weight.grad)
        return collected

    def swap_gradients(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Puts these where the optimizer looks for them, and gives what was there."""
        before = []
        for weight, gradient in zip(self._trained.values(), gradients, strict=True):
            before.append(weight.grad)
            weight.grad = gradient
        return before


def _changeable(leaf: Tensor) -> Tensor:
    """The same memory as no leaf and no view of one, which a layer may not change in place."""
    same: Tensor = torch.ops.aten._unsafe_view(leaf, leaf.shape)
    return same


def _backward(root: Tensor) -> None:
    root.backward()  # type: ignore[no-untyped-call]


class _Given(torch.autograd.Function):
    """Behind tensors whose gradients are known. `torch.autograd.backward` takes those as well, and
    loads torch's symbolic shapes for it: most of a second when a worker has just begun."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *ctx.gradients)


def _gradient_of(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
