"""What a model's layers read, make, weigh and compute, found by running a sample batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from heterps.errors import InputError, ModelError
from heterps.models.batch import LOSS, PREDICTION, Batch, samples_of
from heterps.models.chain import Chain
from heterps.models.kinds import has_batch_statistics, kind_of
from heterps.models.layers import TASKS
from heterps.models.recording import Step, record


@dataclass(frozen=True)
class LayerTrace:
    """One layer. ``input_bytes``, ``row_bytes`` and ``flops`` are per sample and for the forward
    pass: what crosses a cut before the layer, what rows it pulls (each distinct one once), and the
    operations: two a multiply-add of a matrix product, one a number that it makes.
    ``weight_bytes`` of a layer on a table is what the caller says that the table weighs. What a
    micro-batch has once, such as drawn items, is shared out over the samples of the traced batch.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    input_bytes: float
    weight_bytes: int
    flops: float
    table: str | None = None
    row_bytes: float = 0.0


@dataclass(frozen=True)
class Trace:
    """The layers of a chain in order; ``warnings`` are for the person who wrote it."""

    layers: tuple[LayerTrace, ...]
    warnings: tuple[str, ...]
    needed: tuple[tuple[str, ...], ...]
    gradients: tuple[tuple[str, ...], ...]

    def needed_after(self, cut: int | str) -> tuple[str, ...]:
        """The names that cross a cut before layer ``cut`` (its number or name), sorted: those that
        it or a later layer reads, in training or prediction, before they are made anew. One that
        only training makes, or only prediction, crosses where it is made."""
        return self.needed[self._index(cut)]

    def gradients_after(self, cut: int | str) -> tuple[str, ...]:
        """Those of them whose gradients come back: not labels, ids and dense inputs."""
        return self.gradients[self._index(cut)]

    def _index(self, cut: int | str) -> int:
        names = [layer.name for layer in self.layers]
        if isinstance(cut, str) and cut in names:
            return names.index(cut)
        if isinstance(cut, str) or not 0 <= cut < len(names):
            raise InputError("cut", f"expected one of the layers {', '.join(names)}, got {cut!r}")
        return cut


def trace(
    chain: Chain,
    batch: Batch,
    table_bytes: Mapping[str, int] | None = None,
    measured: Collection[str] = (),
) -> Trace:
    """Run ``batch`` through the chain, in training and for prediction, and take its figures.

    ``table_bytes`` estimates what all rows of a table weigh. The names in ``measured`` count as
    read by the last layer, where there are such. Raises ModelError for a chain that cannot be run,
    or that does not end in a loss and predictions.
    """
    samples = samples_of(batch)
    if samples < 1:
        raise ModelError("batch", "is empty; tracing needs a sample or more")
    training, prediction = record(chain, batch, True), record(chain, batch, False)
    _check_end(chain, training[-1], prediction[-1], samples)
    for last in (training[-1], prediction[-1]):
        last.reads.update(name for name in measured if name in last.before)
    both = zip(_live(training), _live(prediction), strict=True)
    needed = tuple(tuple(sorted(one | other)) for one, other in both)
    gradients = tuple(
        tuple(name for name in names if name in step.before and step.before[name].requires_grad)
        for names, step in zip(needed, training, strict=True)
    )
    steps = zip(chain.layers, training, prediction, needed, strict=True)
    layers = tuple(_figures(*step, samples, table_bytes or {}) for step in steps)
    return Trace(layers, _warnings(chain), needed, gradients)


def _live(steps: Sequence[Step]) -> list[set[str]]:
    """For each layer the names that it or a later one reads before they are made anew."""
    live: set[str] = set()
    found = []
    for step in reversed(steps):
        live = (live - step.made.keys()) | step.reads
        found.append(live)
    return found[::-1]


def _figures(
    named: tuple[str, nn.Module],
    training: Step,
    prediction: Step,
    needed: Sequence[str],
    samples: int,
    table_bytes: Mapping[str, int],
) -> LayerTrace:
    name, layer = named
    table = getattr(layer, "table", None)
    before = prediction.before | training.before
    weights = sum(parameter.nbytes for parameter in layer.parameters())
    return LayerTrace(
        name=name,
        kind=kind_of(layer),
        reads=tuple(sorted(training.reads | prediction.reads)),
        writes=tuple(sorted(training.made.keys() | prediction.made.keys())),
        input_bytes=sum(before[key].nbytes for key in needed) / samples,
        weight_bytes=weights + (table_bytes.get(table, 0) if table else 0),
        flops=training.flops / samples,
        table=table,
        row_bytes=training.row_bytes / samples,
    )


def _check_end(chain: Chain, training: Step, prediction: Step, samples: int) -> None:
    layer = f"layer '{chain.names[-1]}'"
    loss, predicted = training.made.get(LOSS), prediction.made.get(PREDICTION)
    if loss is None or loss.numel() != 1 or not loss.requires_grad:
        raise ModelError(
            layer,
            "the last layer has to make 'loss' in training: one number that depends on weights or "
            "rows; end the chain with a loss such as heterps.models.layers.LogLoss",
        )
    if predicted is None or len(predicted) != samples:
        problem = "the last layer has to make 'prediction', one a sample, when it is not training"
        raise ModelError(layer, problem)
    task = getattr(chain.layers[-1][1], "task", None)
    for made in (predicted, training.made.get(PREDICTION)) if task in TASKS else ():
        if made is not None and made.dim() != 1:
            shape = list(made.shape)
            problem = f"'prediction' of the task '{task}' has to be [samples], got {shape}"
            raise ModelError(layer, f"{problem}; perhaps .squeeze(1)")


def _warnings(chain: Chain) -> tuple[str, ...]:
    return tuple(
        f"layer '{name}': batch statistics are those of a micro-batch, so results depend on its "
        "size and one sample alone fails; a norm per sample such as nn.LayerNorm has neither"
        for name, layer in chain.layers
        if has_batch_statistics(layer)
    )
