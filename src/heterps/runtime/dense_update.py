"""How the dense weights of a stage change at the end of a batch.

``allreduce``: the replicas sum their gradients, and each takes the same step of the optimizer.
``server``: each replica pushes the gradient of its own samples to the parameter servers, whose
rules apply it at once, and goes on with what the weights have become; nobody waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heterps.models.chain import Chain
from heterps.runtime.optimizers import clip_layers, set_learning_rate, take_step

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]
_STATE = "optimizer/"
Factor = Callable[[int], float]  # of the learning rate in a batch


class Replicas(Protocol):
    """The replicas of a stage, all of which sum once a batch; ``beside`` other work, or not."""

    @property
    def beside(self) -> bool: ...

    def sum(self, tensors: Sequence[Tensor], *, nothing: bool = False) -> None:
        """In place; the same on every replica afterwards. ``nothing``: all here are zero."""
        ...

    def begin(
        self, tensors: Sequence[Tensor], ready: Callable[[], None], *, nothing: bool = False
    ) -> Callable[[], None]:
        """In two steps, as ``ReplicaGroup`` says."""
        ...


class DenseUpdate(ABC):
    """The gradients of a batch are in the weights' ``grad`` when these are called."""

    @property
    def sums(self) -> bool:
        """Whether replicas wait for each other at all."""
        return False

    @property
    def beside(self) -> bool:
        """Whether work on later batches can go on between the beginning of a sum and its end."""
        return False

    @abstractmethod
    def sum(self, gradients: Sequence[Tensor], share: float) -> None:
        """Over the replicas, if they do; ``share`` is the part of the batch's samples that this
        replica had."""

    def begin(
        self, gradients: Sequence[Tensor], share: float, ready: Callable[[], None]
    ) -> Callable[[], None]:
        """The sum in two steps: what this returns ends it, and waits for nobody once ``ready`` was
        called, by any thread."""
        self.sum(gradients, share)
        ready()
        return lambda: None

    @abstractmethod
    def step(self, batch: int) -> None:
        """Changes the weights."""

    def refresh(self) -> None:
        """Takes over what others have made of the weights, where they are shared."""
        return

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on beside the weights: ``optimizer/<weight>/<key>``."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what ``state`` gave, here or in another plan; the weights are loaded."""
        return


class SummedUpdate(DenseUpdate):
    """One step of a torch optimizer for the whole batch. Buffers of floating numbers, such as
    running means, become their average over the replicas."""

    def __init__(
        self,
        chain: Chain,
        replicas: Replicas,
        make_optimizer: MakeOptimizer,
        *,
        count: int = 1,
        clip: float | None = None,
        factor: Factor = lambda batch: 1.0,
    ) -> None:
        self._chain = chain
        self._replicas = replicas
        self._clip = clip
        self._factor = factor
        self._count = count
        self._buffers = [b for b in chain.buffers() if b.is_floating_point()] if count > 1 else []
        weights = list(chain.trained.values())
        self.optimizer = make_optimizer(weights) if weights else None
        self._lr = [g["lr"] for g in self.optimizer.param_groups] if self.optimizer else []

    @property
    def sums(self) -> bool:
        return self._count > 1 and bool(self.optimizer is not None or self._buffers)

    @property
    def beside(self) -> bool:
        """Buffers are changed by work on later batches: they would lose it."""
        return self.sums and self._replicas.beside and not self._buffers

    def sum(self, gradients: Sequence[Tensor], share: float) -> None:
        for buffer in self._buffers:
            buffer /= self._count
        if gradients or self._buffers:
            nothing = share == 0 and not self._buffers
            self._replicas.sum([*gradients, *self._buffers], nothing=nothing)

    def begin(
        self, gradients: Sequence[Tensor], share: float, ready: Callable[[], None]
    ) -> Callable[[], None]:
        return self._replicas.begin(gradients, ready, nothing=share == 0)

    def step(self, batch: int) -> None:
        if self.optimizer is None:
            return
        if self._clip is not None:
            clip_layers(self._chain, self._clip)
        for lr in self._lr[:1]:
            set_learning_rate(self.optimizer, lr * self._factor(batch))
        take_step(self.optimizer)
        # The next backward puts its gradients there instead of adding them to zeros.
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        if self.optimizer is None:
            return {}
        return {
            f"{_STATE}{name}/{key}": value
            for name, weight in self._chain.named_parameters()
            for key, value in self.optimizer.state.get(weight, {}).items()
            if isinstance(value, Tensor)
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        if self.optimizer is None:
            return
        self.optimizer.state.clear()
        for name, weight in self._chain.named_parameters():
            start = f"{_STATE}{name}/"
            own = {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
            if own:
                # A scalar such as the step stays where torch keeps it.
                placed = {k: v.to(weight.device) if v.dim() else v for k, v in own.items()}
                self.optimizer.state[weight] = {k: v.clone() for k, v in placed.items()}


class RemoteWeight(Protocol):
    """A dense tensor on a parameter server."""

    def push(self, grads: object, lr: float | None = None) -> None: ...
    def pull(self, out: object = None) -> object: ...


class ServerUpdate(DenseUpdate):
    """``weights`` are the tensors of the parameter servers by the names of the chain's."""

    def __init__(
        self,
        chain: Chain,
        weights: Mapping[str, RemoteWeight],
        lr: float,
        *,
        clip: float | None = None,
        factor: Factor = lambda batch: 1.0,
    ) -> None:
        self._chain = chain
        self._weights = weights
        self._lr = lr
        self._clip = clip
        self._factor = factor
        self._had_any = True
        self.refresh()

    def sum(self, gradients: Sequence[Tensor], share: float) -> None:
        """What is pushed is the mean gradient over this replica's own samples."""
        self._had_any = share > 0
        for gradient in gradients if self._had_any else ():
            gradient /= share

    def step(self, batch: int) -> None:
        if self._had_any:
            if self._clip is not None:
                clip_layers(self._chain, self._clip)
            for name, weight in self._chain.trained.items():
                assert weight.grad is not None
                gradient = weight.grad.detach().to("cpu", torch.float32).contiguous().numpy()
                self._weights[name].push(gradient, self._lr * self._factor(batch))
        self.refresh()
        self._chain.zero_grad(set_to_none=False)

    def state(self) -> dict[str, Tensor]:
        """None here; the weights become what all replicas have made of them."""
        self.refresh()
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Takes over what the servers have."""
        with torch.no_grad():
            for name, weight in self._chain.named_parameters():
                weight.copy_(torch.as_tensor(self._weights[name].pull()))
