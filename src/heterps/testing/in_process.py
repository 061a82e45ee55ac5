"""A whole pipeline in one thread: every stage and replica, messages in any order, real tables.

What it shares with a run in processes is all that decides the result: the programs of the replicas,
the stages and the tables. Sockets are left out.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heterps.models.batch import LOSS, Batch, samples_of
from heterps.models.chain import Chain
from heterps.models.trace import trace
from heterps.ps.table import SparseTable
from heterps.runtime.collective import ReplicaGroup
from heterps.runtime.dense_update import MakeOptimizer, SummedUpdate
from heterps.runtime.pipeline import Do, ReplicaProgram, Routing
from heterps.runtime.stage import Cut, MicroBatch, Stage

Key = tuple[int, int]  # stage and replica


@dataclass(frozen=True)
class _RowsAt:
    tables: Mapping[str, SparseTable]
    batch: int

    def pull(self, table: str, ids: Tensor) -> Tensor:
        # Who drives the pipeline sees to it that nothing has to be waited for.
        return torch.from_numpy(self.tables[table].pull(ids, self.batch, timeout_s=0.0))


class InProcessPipeline:
    """Trains ``chain`` cut before the layers ``cuts``, with ``replicas`` of each stage.

    ``batches`` are lists of micro-batches. ``run`` gives the loss of each batch. The order in which
    replicas work and messages arrive is drawn by ``timing_seed`` and must not matter.
    """

    def __init__(
        self,
        chain: Chain,
        cuts: Sequence[int],
        replicas: Sequence[int],
        batches: Sequence[Sequence[Batch]],
        tables: Mapping[str, SparseTable],
        make_optimizer: MakeOptimizer,
        *,
        lanes: int = 16,
        seed: int = 0,
        staleness: int = 0,
        timing_seed: int = 0,
    ) -> None:
        self.batches = batches
        self.tables = tables
        self.staleness = staleness
        self._routing = Routing(lanes, tuple(replicas))
        self._random = random.Random(timing_seed)
        starts = [0]
        for batch in batches:
            starts.append(starts[-1] + len(batch))
        self._range: Callable[[int], range] = lambda b: range(starts[b], starts[b + 1])
        self._micro_batches = [_numbered(b, starts, batches) for b in range(len(batches))]
        self.stages = _stages(
            chain, cuts, self._routing, batches[0][0], make_optimizer,
            seed=seed, stale=staleness > 0,
        )  # fmt: skip
        self._programs = {
            (stage, replica): ReplicaProgram(
                self._routing, stage, replica, self._range,
                end_batch=len(batches), staleness=staleness,
            )
            for stage, replica in self.stages
        }  # fmt: skip
        self._inputs: dict[tuple[int, int], Batch] = {}  # by stage and micro-batch
        self._gradients: dict[tuple[int, int], dict[str, Tensor]] = {}
        self._messages: list[tuple[str, int, int]] = []
        self._committing: dict[Key, int] = {}
        self._losses = [0.0] * len(batches)

    def run(self) -> list[float]:
        self._announce()
        for b, batch in enumerate(self.batches):
            for j, micro_batch in zip(self._range(b), batch, strict=True):
                self._post("input", 0, j, micro_batch)
        while self._committing or not all(p.finished for p in self._programs.values()):
            keys = list(self._programs)
            self._random.shuffle(keys)
            worked = [key for key in keys if self._work(key)]
            assert self._deliver() or worked, "the pipeline has locked up"
        return self._losses

    def weights(self, stage: int, replica: int = 0) -> dict[str, Tensor]:
        return self.stages[stage, replica].chain.state_dict()

    def _announce(self) -> None:
        chains = {key[0]: stage.chain for key, stage in self.stages.items()}
        for name, table in self.tables.items():
            layers = sum(
                layer.table == name for c in chains.values() for layer in c.row_layers.values()
            )
            for b, batch in enumerate(self.batches):
                table.announce(b, len(batch) * layers)

    def _post(self, kind: str, stage: int, number: int, tensors: Mapping[str, Tensor]) -> None:
        if kind == "input":
            self._inputs[stage, number] = tensors
        else:
            self._gradients[stage, number] = dict(tensors)
        self._messages.append((kind, stage, number))

    def _deliver(self) -> bool:
        """Some of the messages that may arrive now, in any order."""
        able = [message for message in self._messages if self._may_arrive(*message)]
        chosen = self._random.sample(able, self._random.randint(min(1, len(able)), len(able)))
        for message in chosen:
            self._messages.remove(message)
            kind, stage, number = message
            program = self._programs[stage, self._routing.replica(stage, number)]
            arrived = program.input_arrived if kind == "input" else program.gradient_arrived
            arrived(number)
        return bool(chosen)

    def _may_arrive(self, kind: str, stage: int, number: int) -> bool:
        """Input of a batch whose rows are not there yet is held back: a pull would block."""
        if kind == "gradient":
            return True
        batch = self._batch_of(number)
        names = {layer.table for layer in self.stages[stage, 0].chain.row_layers.values()}
        return all(self.tables[name].committed >= batch - 1 - self.staleness for name in names)

    def _batch_of(self, number: int) -> int:
        return next(b for b in range(len(self.batches)) if number in self._range(b))

    def _work(self, key: Key) -> bool:
        if key in self._committing:
            return self._leave_commit(key[0])
        task = self._programs[key].take()
        if task is None:
            return False
        if task.do is Do.COMMIT:
            self._committing[key] = task.number
        elif task.do is Do.FORWARD:
            self._forward(key, task.number)
        elif task.do is Do.BACKWARD:
            self._backward(key, task.number)
        else:
            self.stages[key].finish_backward(task.number)
        return True

    def _forward(self, key: Key, number: int) -> None:
        stage, b = key[0], self._batch_of(number)
        micro_batch = self._micro_batches[b][number - self._range(b).start]
        at_work, arrived = self.stages[key], self._inputs.pop((stage, number))
        source = _RowsAt(self.tables, b)
        asked = at_work.chain.ask(arrived, source, at_work.context(number))
        made = at_work.forward(micro_batch, arrived, asked)
        if stage + 1 < self._routing.stages:
            self._post("input", stage + 1, number, made)
        else:
            self._losses[b] += float(made[LOSS]) * micro_batch.share

    def _backward(self, key: Key, number: int) -> None:
        stage = key[0]
        arrived = self._gradients.pop((stage, number), {})
        gradients, of_rows = self.stages[key].backward(number, arrived)
        for rows in of_rows:
            self.tables[rows.table].accumulate(rows.batch, rows.part, rows.ids, rows.values)
        if stage > 0:
            self._post("gradient", stage - 1, number, gradients)

    def _leave_commit(self, stage: int) -> bool:
        """Once all replicas of the stage are there: sum in their order, step."""
        keys = [key for key in self.stages if key[0] == stage]
        if {self._committing.get(key) for key in keys} != {self._committing.get(keys[0])}:
            return False
        batch = self._committing[keys[0]]
        collected = [self.stages[key].collect(self._committing.pop(key)) for key in keys]
        for gradients in zip(*collected, strict=True):
            total = gradients[0].clone()
            for gradient in gradients[1:]:
                total += gradient
            for gradient in gradients:
                gradient.copy_(total)
        for key in keys:
            self.stages[key].step(batch)
        return True


class _NoSum(ReplicaGroup):
    def sum(self, tensors: Sequence[Tensor], *, nothing: bool = False) -> None:
        raise AssertionError("the pipeline sums by itself")


def _numbered(b: int, starts: list[int], batches: Sequence[Sequence[Batch]]) -> list[MicroBatch]:
    samples = [samples_of(micro_batch) for micro_batch in batches[b]]
    return [
        MicroBatch(starts[b] + index, b, count / max(sum(samples), 1))
        for index, count in enumerate(samples)
    ]


def _stages(
    chain: Chain,
    cuts: Sequence[int],
    routing: Routing,
    sample: Batch,
    make_optimizer: MakeOptimizer,
    *,
    seed: int,
    stale: bool,
) -> dict[Key, Stage]:
    traced = trace(chain, sample)
    edges = [0, *cuts, len(chain.layers)]
    crossing = [Cut(traced.needed_after(c), traced.gradients_after(c)) for c in edges[1:-1]]
    stages = {}
    for stage, (first, end) in enumerate(itertools.pairwise(edges)):
        for replica in range(routing.replicas[stage]):
            layers = copy.deepcopy(chain.slice(first, end - 1))
            stages[stage, replica] = Stage(
                layers, first, SummedUpdate(layers, _NoSum(), make_optimizer),
                before=crossing[stage - 1] if stage else None,
                after=crossing[stage] if stage < len(cuts) else None,
                seed=seed, stale=stale and stage < len(cuts),
            )  # fmt: skip
    return stages
