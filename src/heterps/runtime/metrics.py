"""How well a model does, as counts that workers add up and anyone can merge.

What a model's predictions mean is its ``task``, an attribute of its last layer: ``binary`` for
probabilities of the label 1, ``sampled`` for the probability of a target among drawn items. A model
without one is judged by its loss alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heterps.errors import InputError
from heterps.job.training import Metric
from heterps.models.batch import LABEL, LOSS, PREDICTION, WEIGHT, Batch
from heterps.models.chain import Chain
from heterps.models.layers import TASKS
from heterps.models.sampled import RANK
from heterps.runtime.histogram import Histogram

LARGER_IS_BETTER = frozenset({"auc", "recall"})
# Probabilities are told apart by their logits: 2^12 steps to one, from -16 to 16.
_STEPS, _REACH = 4096, 16
_COLUMNS = {"bins": "<i4", "positive": "<f8", "negative": "<f8"}
# What a probability in float32 is kept away from 0 and 1 by.
_LEAST = 2.0**-25

Floats = npt.NDArray[np.float64]


class Counts(ABC):
    """Sums over samples; ``metrics`` are what they tell, the first being the one to go by.
    ``reads`` are the names that ``observe`` looks at, as far as they are there."""

    task: ClassVar[str | None]
    metrics: ClassVar[tuple[str, ...]]
    reads: ClassVar[tuple[str, ...]]
    _names: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self._sums: dict[str, float] = dict.fromkeys(self._names, 0.0)

    @abstractmethod
    def observe(self, made: Batch, batch: Batch) -> None:
        """Add what a model made of a batch that holds the labels."""

    @property
    def samples(self) -> int:
        return int(self._sums["samples"])

    def value(self, metric: str) -> float:
        """NaN where there is nothing to tell."""
        return float(getattr(self, metric))

    def values(self) -> dict[str, float]:
        return {metric: self.value(metric) for metric in self.metrics}

    @property
    @abstractmethod
    def missing(self) -> str:
        """Why there is no number to go by, where there is none."""

    def merge(self, other: Self) -> None:
        """Add what another one has counted."""
        for name in self._names:
            self._sums[name] += other._sums[name]

    def pack(self) -> dict[str, Any]:
        """Numbers and bytes alone, for a message."""
        return {"task": self.task, "sums": [self._sums[name] for name in self._names]}

    def load(self, fields: Mapping[str, Any]) -> None:
        """Take over what ``pack`` gave."""
        self._sums = dict(zip(self._names, map(float, fields["sums"]), strict=True))

    def _share(self, part: str, whole: str) -> float:
        return self._sums[part] / self._sums[whole] if self._sums[whole] else math.nan

    def _add(self, **sums: float) -> None:
        for name, value in sums.items():
            self._sums[name] += value


class LossCounts(Counts):
    """The model's own loss, where it makes one."""

    task = None
    metrics = ("loss",)
    reads = (PREDICTION, LABEL, LOSS)
    _names = ("samples", "counted", "loss")

    def observe(self, made: Batch, batch: Batch) -> None:
        samples = len(made[PREDICTION]) if PREDICTION in made else len(batch.get(LABEL, ()))
        if LOSS in made:
            self.add(float(made[LOSS]), samples)
        else:
            self._add(samples=samples)

    def add(self, loss: float, samples: int) -> None:
        """``loss`` is the mean over ``samples``."""
        self._add(samples=samples, counted=samples, loss=loss * samples)

    @property
    def loss(self) -> float:
        return self._share("loss", "counted")

    @property
    def missing(self) -> str:
        if self._sums["counted"]:
            return "the loss is not finite"
        return "the last layer has no task, and makes no 'loss' when it is not training"


class BinaryCounts(Counts):
    """Of probabilities and labels 0 and 1: the area under the ROC curve by a histogram of logits,
    which is right to 1e-4 as long as they spread over a hundredth or more."""

    task = "binary"
    metrics = ("auc", "logloss", "normalised_entropy", "calibration", "loss")
    reads = (PREDICTION, LABEL, WEIGHT)
    _names = ("samples", "weight", "label", "prediction", "loss")

    def __init__(self) -> None:
        super().__init__()
        self._histogram = Histogram()

    def observe(self, made: Batch, batch: Batch) -> None:
        if PREDICTION in made:  # a person's own layer may make none in training
            self.add(made[PREDICTION], batch[LABEL], batch.get(WEIGHT))

    def add(self, prediction: Tensor, label: Tensor, weight: Tensor | None = None) -> None:
        chance, truth = _doubles(prediction), _doubles(label)
        by = np.ones(len(chance)) if weight is None else _doubles(weight)
        near = np.clip(chance, _LEAST, 1 - _LEAST)
        above, below = np.log(near), np.log1p(-near)
        self._add(
            samples=len(chance),
            weight=float(by.sum()),
            label=float(by @ truth),
            prediction=float(by @ chance),
            loss=-float(by @ (truth * above + (1 - truth) * below)),
        )
        logits = np.clip(above - below, -_REACH, _REACH)
        if math.isnan(self._sums["prediction"]):
            logits = np.nan_to_num(logits)  # they have no place; the AUC is none from now on
        places = np.rint(logits * _STEPS)
        self._histogram.add(places.astype(np.int32), by * truth, by * (1 - truth))

    def merge(self, other: Self) -> None:
        super().merge(other)
        self._histogram.add(*other._histogram.columns())

    def pack(self) -> dict[str, Any]:
        bins, positive, negative = (column.tobytes() for column in self._histogram.columns())
        return super().pack() | {"bins": bins, "positive": positive, "negative": negative}

    def load(self, fields: Mapping[str, Any]) -> None:
        super().load(fields)
        columns = (np.frombuffer(fields[name], kind) for name, kind in _COLUMNS.items())
        self._histogram = Histogram()
        self._histogram.add(*columns)

    @property
    def missing(self) -> str:
        if math.isnan(self._sums["prediction"]):
            return "predictions are not finite"
        return "labels are of one class" if self._sums["samples"] else "there is no prediction"

    @property
    def auc(self) -> float:
        """The chance that a positive is given more than a negative; equal ones count half."""
        _, positive, negative = self._histogram.columns()
        pairs = positive.sum() * negative.sum()
        if not pairs or math.isnan(self._sums["prediction"]):
            return math.nan
        below = np.cumsum(negative) - negative / 2
        # Not as a product of vectors: the threads of a BLAS turn in circles after each.
        return float((positive * below).sum() / pairs)

    @property
    def logloss(self) -> float:
        """Nats a sample, samples counting by their weight."""
        return self._share("loss", "weight")

    @property
    def loss(self) -> float:
        """As in training: divided by the number of samples, whatever their weight."""
        return self._share("loss", "samples")

    @property
    def label_mean(self) -> float:
        return self._share("label", "weight")

    @property
    def prediction_mean(self) -> float:
        return self._share("prediction", "weight")

    @property
    def normalised_entropy(self) -> float:
        """The log-loss as a share of that of always predicting the mean label."""
        mean = self.label_mean
        if not 0 < mean < 1:
            return math.nan
        return self.logloss / -(mean * math.log(mean) + (1 - mean) * math.log1p(-mean))

    @property
    def calibration(self) -> float:
        """The mean prediction over the mean label: 1 is right, more is too optimistic."""
        return self._share("prediction", "label")


class SampledCounts(Counts):
    """Of a target among drawn items: the loss, and the share of targets among the best ``k``."""

    task = "sampled"
    metrics = ("recall", "loss")
    reads = (PREDICTION, RANK, WEIGHT)
    _names = ("samples", "weight", "loss", "ranked", "hits")

    def __init__(self, k: int = 10) -> None:
        super().__init__()
        self.k = k

    def observe(self, made: Batch, batch: Batch) -> None:
        if PREDICTION in made:
            self.add(made[PREDICTION], made.get(RANK), batch.get(WEIGHT))

    def add(
        self, prediction: Tensor, rank: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        """``rank`` counts the drawn items that score as high as the target or higher."""
        chance = _doubles(prediction)
        by = np.ones(len(chance)) if weight is None else _doubles(weight)
        losses = -np.log(np.maximum(chance, np.finfo(np.float32).tiny))
        self._add(samples=len(chance), weight=float(by.sum()), loss=float(by @ losses))
        if rank is not None:
            hits = (rank.detach().cpu().numpy() < self.k).astype(np.float64)
            self._add(ranked=float(by.sum()), hits=float(by @ hits))

    def pack(self) -> dict[str, Any]:
        return super().pack() | {"k": self.k}

    def load(self, fields: Mapping[str, Any]) -> None:
        super().load(fields)
        self.k = int(fields["k"])

    @property
    def loss(self) -> float:
        """Of the target among the drawn items, as in training."""
        return self._share("loss", "samples")

    @property
    def recall(self) -> float:
        return self._share("hits", "ranked")

    @property
    def missing(self) -> str:
        if math.isnan(self._sums["loss"]):
            return "predictions are not finite"
        return "no target was ranked"


def task_of(chain: Chain) -> str | None:
    """What the predictions of a model mean, as far as they have one of the known meanings."""
    task = getattr(chain.layers[-1][1], "task", None)
    return task if task in TASKS else None


def counts_for(task: str | None, k: int = 10) -> Counts:
    if task == "binary":
        return BinaryCounts()
    return SampledCounts(k) if task == "sampled" else LossCounts()


def unpack_counts(fields: Mapping[str, Any]) -> Counts:
    """What ``pack`` gave."""
    counts = counts_for(fields["task"])
    counts.load(fields)
    return counts


def chosen_metric(wanted: str | None, task: str | None) -> str:
    """The metric to go by, the job's if it names one. Raises InputError if the task lacks it."""
    known = [name for name in counts_for(task).metrics if name in get_args(Metric)]
    if wanted is None:
        return known[0]
    if wanted not in known:
        kind = f"a {task} model" if task else "a model without a task"
        problem = f"{kind} has no {wanted} (it has: {', '.join(known)})"
        raise InputError("validation.metric", problem)
    return wanted


def is_better(metric: str, value: float, than: float | None) -> bool:
    """Whether a value is an improvement; NaN never is."""
    if math.isnan(value):
        return False
    if than is None or math.isnan(than):
        return True
    return value > than if metric in LARGER_IS_BETTER else value < than


def _doubles(values: Tensor) -> Floats:
    doubles: Floats = values.detach().to("cpu", torch.float64).numpy()
    return doubles
