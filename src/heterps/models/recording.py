"""Running a chain on a sample batch, layer by layer, noting what each reads, makes and computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from heterps.errors import ModelError
from heterps.models.batch import Batch
from heterps.models.chain import Chain, missed
from heterps.models.context import Context
from heterps.models.rows import Rows, ask


@dataclass
class Step:
    """A layer's run: the batch before it, the names it read, what it made, and what that took."""

    before: dict[str, Tensor]
    reads: set[str] = field(default_factory=set)
    made: dict[str, Tensor] = field(default_factory=dict)
    flops: int = 0
    row_bytes: int = 0


def record(chain: Chain, batch: Batch, training: bool) -> list[Step]:
    """One step a layer. Leaves the chain as it was; raises ModelError for a layer that fails."""
    context = Context(training=training)
    was_training = chain.training
    buffers = {name: buffer.clone() for name, buffer in chain.named_buffers()}
    chain.train(training)
    try:
        with torch.set_grad_enabled(training):
            return list(_steps(chain, batch, context))
    finally:
        chain.train(was_training)
        with torch.no_grad():
            for name, buffer in chain.named_buffers():
                buffer.copy_(buffers[name])


def _steps(chain: Chain, batch: Batch, context: Context) -> Iterator[Step]:
    before = dict(batch)
    for name in chain.names:
        step = Step(dict(before))
        with FlopCounterMode(display=False) as counter:
            _run(chain, name, batch, step, context)
        floating = [made for made in step.made.values() if made.is_floating_point()]
        step.flops = counter.get_total_flops() + sum(made.numel() for made in floating)
        before |= step.made
        yield step


def _run(chain: Chain, name: str, data: Batch, step: Step, context: Context) -> None:
    try:
        rows = _rows(chain, name, data, step, context)
        step.made = chain.step(name, _Noting(step.before, name, step.reads), rows, context)
    except ModelError:
        raise
    except Exception as error:
        # A person's own layers run here, and may fail in any way.
        said = (str(error).splitlines() or [""])[0]
        problem = f"failed on a sample batch: {type(error).__name__}: {said}"
        raise ModelError(f"layer '{name}'", problem) from error


def _rows(chain: Chain, name: str, data: Batch, step: Step, context: Context) -> dict[str, Rows]:
    layer = chain.row_layers.get(name)
    if layer is None:
        return {}
    # Only names of the data: in a run ids are asked for before the layers in front have run.
    read: set[str] = set()
    ids = layer.ids(_Noting(data, name, read), context.at(name))
    for each in read:
        if step.before[each] is not data[each]:
            problem = f"its ids are asked for by '{each}' of the data, which a layer before it"
            fix = "makes anew: let that one make another name"
            raise ModelError(f"layer '{name}'", f"{problem} {fix}")
    step.reads |= read
    rows = ask(_Zeros(chain, layer.dim), layer.table, ids, context.training).rows
    step.row_bytes = rows.values.numel() * torch.float32.itemsize
    return {name: rows}


class _Zeros:
    """Rows to trace with, which no table has to hold."""

    def __init__(self, chain: Chain, dim: int) -> None:
        self._dim = dim
        weights = (weight.dtype for weight in chain.parameters() if weight.is_floating_point())
        self._dtype = next(weights, torch.float32)

    def pull(self, table: str, ids: Tensor) -> Tensor:
        return torch.zeros(len(ids), self._dim, dtype=self._dtype)


class _Noting(Mapping[str, Tensor]):
    """A batch that notes the names that are read, or found to be there."""

    def __init__(self, batch: Batch, layer: str, reads: set[str]) -> None:
        self._batch, self._layer, self._reads = batch, layer, reads

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._batch:
            missed(self._layer, name, self._batch)
        self._reads.add(name)
        return self._batch[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._batch:
            return False
        self._reads.add(str(name))
        return True

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        if name not in self:
            return default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch)

    def __len__(self) -> int:
        return len(self._batch)
