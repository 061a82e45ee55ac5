"""Forward and backward of each layer alone, in this process: how a stage's time is shared out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

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
    """Seconds for a micro-batch, one of each layer, and their relative spread."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    spread: float


def time_layers(setup: Setup, entry: ResourceType, batch: Mapping[str, Tensor]) -> LayerTimes:
    """Every layer as a stage of its own on the device of a type, without its emulation."""
    with InThreads(entry.threads):
        line = _Line(setup, entry, batch)
        seconds, spread = repeat(line.once)
    count = len(line.stages)
    return LayerTimes(tuple(seconds[:count]), tuple(seconds[count:]), spread)


class _Line:
    """All layers of a model, each a stage."""

    def __init__(self, setup: Setup, entry: ResourceType, batch: Mapping[str, Tensor]) -> None:
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
                part := chain.slice(at, at),
                at,
                SummedUpdate(part, Alone(), lambda weights: make_optimizer(make, weights)),
                before=edges[at],
                after=edges[at + 1],
                seed=setup.job.seed,
                threads=threads,
            )
            for at in range(count)
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
