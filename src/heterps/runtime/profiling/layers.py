"""Forward and backward of each layer, in this process: how a stage's time is shared out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from heterps.data.batch import samples
from heterps.job.resources import ResourceType
from heterps.runtime.collective import Alone
from heterps.runtime.dense_update import SummedUpdate
from heterps.runtime.optimizers import make_optimizer
from heterps.runtime.prepare import Setup
from heterps.runtime.profiling.repeat import repeat
from heterps.runtime.stage import Cut, MicroBatch, Stage
from heterps.runtime.threads import InThreads, Threads


@dataclass(frozen=True)
class LayerTimes:
    """Seconds for a micro-batch, one of each layer, and their relative spread. What a stage takes
    whatever layers it has is half of the first layer's and half of the last one's."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    spread: float


def time_layers(setup: Setup, entry: ResourceType, batch: Mapping[str, Tensor]) -> LayerTimes:
    """Every layer as a stage of its own, and all of them as one, on the device of a type without
    its emulation."""
    count = len(setup.chain.layers)
    with InThreads(entry.threads):
        each = _Line(setup, entry, batch, range(count + 1))
        together = _Line(setup, entry, batch, (0, count))
        seconds, spread = repeat(lambda: [*each.once(), *together.once()])
    forward, backward, whole = seconds[:count], seconds[count : 2 * count], seconds[2 * count :]
    return LayerTimes(
        tuple(without_stages(forward, whole[0])), tuple(without_stages(backward, whole[1])), spread
    )


def without_stages(alone: Sequence[float], together: float) -> list[float]:
    """What layers take, by what each takes as a stage of its own and all of them as one. That many
    stages pay so many times for what a stage takes beside its layers, which is more than what some
    layers do."""
    beside = max(0.0, (sum(alone) - together) / max(1, len(alone) - 1))
    ends = at_ends(len(alone))
    return [max(0.0, own - beside) + beside * share for own, share in zip(alone, ends, strict=True)]


def at_ends(count: int) -> list[float]:
    """Half of it each for the first and the last layer."""
    shares = [0.0] * count
    shares[0] += 0.5
    shares[-1] += 0.5
    return shares


class _Line:
    """All layers of a model in stages, each from one of the ``borders`` to the next."""

    def __init__(
        self,
        setup: Setup,
        entry: ResourceType,
        batch: Mapping[str, Tensor],
        borders: Sequence[int],
    ) -> None:
        self._device = torch.device(entry.device)
        chain = setup.chain.to(self._device)
        self._batch = {name: tensor.to(self._device) for name, tensor in batch.items()}
        traced, count = setup.trace, len(chain.layers)
        cuts = [Cut(traced.needed[at], traced.gradients[at]) for at in range(1, count)]
        edges: list[Cut | None] = [None, *cuts, None]
        make = setup.job.optimizer
        bags = setup.job.data is None or setup.job.data.has_bags
        most = torch.get_num_threads()
        threads = Threads.of(chain, samples(dict(batch)), most, bags=bags)
        self.stages = [
            Stage(
                part := chain.slice(first, end - 1),
                first,
                SummedUpdate(part, Alone(), lambda weights: make_optimizer(make, weights)),
                before=edges[first],
                after=edges[end],
                seed=setup.job.seed,
                threads=threads,
            )
            for first, end in pairwise(borders)
        ]
        self._number = 0

    def once(self) -> list[float]:
        """Seconds forward of each, then backward of each."""
        self._number += 1
        batch, forward = dict(self._batch), []
        for stage in self.stages:
            asked = stage.chain.ask(batch, _Rows(self._device, stage), stage.context(self._number))
            began = self._now()
            batch = stage.forward(MicroBatch(self._number, 0, 1.0), batch, asked)
            forward.append(self._now() - began)
        return forward + self._back()

    def _back(self) -> list[float]:
        backward: list[float] = []
        gradients: dict[str, Tensor] = {}
        for stage in reversed(self.stages):
            began = self._now()
            gradients, _ = stage.backward(self._number, gradients)
            stage.finish_backward(self._number)
            backward.append(self._now() - began)
        return backward[::-1]

    def _now(self) -> float:
        """Of CPU where the thread itself computes: others on the machine do not count."""
        if self._device.type == "cpu":
            return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()
        getattr(torch, self._device.type).synchronize()
        return time.perf_counter()


class _Rows:
    """Rows as wide as a table's, of no meaning."""

    def __init__(self, device: torch.device, stage: Stage) -> None:
        self._device = device
        self._dims = stage.chain.tables

    def pull(self, table: str, ids: Tensor) -> Tensor:
        return torch.full((len(ids), self._dims[table]), 0.01, device=self._device)
