"""What the coordinator knows of a run while it goes on: from workers' reports to one line."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack
import torch
from torch import Tensor

from heterps.planning.measured import MeasuredStage
from heterps.runtime.layout import Layout, micro_batch, micro_batches_of
from heterps.runtime.meter import BACKWARD, BUSY, FORWARD
from heterps.runtime.metrics import Counts, counts_for, unpack_counts
from heterps.runtime.pace import Work

_WARM_UP = 2  # batches that a worker does before it counts what they take
LEAST_AHEAD, _AHEAD_S = 8, 2.0  # batches and seconds of work that workers know of
# Progressive metrics are those of the samples that came last.
_RECENT_SAMPLES = 200_000


@dataclass(frozen=True)
class Validation:
    """After ``step`` batches; ``better``: than all before it."""

    step: int
    metrics: Mapping[str, float]
    better: bool


@dataclass(frozen=True)
class Status:
    """A run at one moment. ``metrics`` are progressive: of predictions made before training on the
    sample. ``busy`` is each stage's share of its time that it worked. ``validation`` is the last
    one since the run was started, or started again."""

    step: int
    steps: int
    samples: int
    samples_per_s: float
    loss: float
    metrics: Mapping[str, float]
    busy: tuple[float, ...]
    dollars: float
    seconds: float
    staleness: Mapping[str, int]
    validation: Validation | None = None


@dataclass
class _Recent:
    """Counts of the last samples."""

    task: str | None
    k: int
    parts: deque[Counts] = field(default_factory=deque)

    def add(self, counts: Counts) -> None:
        self.parts.append(counts)
        while sum(part.samples for part in self.parts) - self.parts[0].samples > _RECENT_SAMPLES:
            self.parts.popleft()
        if len(self.parts) > 64:
            self.parts.appendleft(_merged([self.parts.popleft() for _ in range(32)], self))

    def values(self) -> dict[str, float]:
        return _merged(list(self.parts), self).values()

    def pack(self) -> bytes:
        packed: bytes = msgpack.packb(_merged(list(self.parts), self).pack())
        return packed

    def load(self, packed: bytes) -> None:
        """Of the same task; another's says nothing here."""
        fields = msgpack.unpackb(packed)
        if fields["task"] == self.task:
            self.parts = deque([unpack_counts(fields)])


def _merged(parts: list[Counts], like: _Recent) -> Counts:
    total = counts_for(like.task, like.k)
    for part in parts:
        total.merge(part)
    return total


class Progress:
    """Put together from what workers report: losses of micro-batches become those of batches."""

    def __init__(
        self,
        layout: Layout,
        task: str | None,
        k: int,
        dollars_per_hour: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        first: int = 0,
        samples: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """``first`` is the batch it begins with, after so many samples and seconds."""
        self.layout = layout
        self._clock = clock
        self._dollars_per_s = dollars_per_hour / 3600
        self._waiting: dict[int, dict[int, float]] = {}  # losses by batch and micro-batch
        self._recent = _Recent(task, k)
        self._meters: dict[int, dict[str, float]] = {}
        self._warm: dict[int, dict[str, float]] = {}  # the meters when a worker was warm
        self._samples: dict[int, int] = {}  # of each worker
        self._staleness: dict[int, Mapping[str, int]] = {}
        self._committed: dict[int, int] = {}
        self._started = clock() - seconds
        self._pace: deque[tuple[float, int]] = deque(maxlen=64)
        self._new: list[float] = []
        self.losses_from = first
        self.step = first
        self.samples = samples
        self.loss = math.nan
        self.validation: Validation | None = None
        self._mark: tuple[float, int] | None = None  # the last moment that counts for the mean
        self._counted_s, self._counted = 0.0, 0

    def heard(self, worker: int, fields: Mapping[str, Any]) -> None:
        self._meters[worker] = meter = fields["meter"]
        if worker not in self._warm and meter.get("batches", 0.0) >= _WARM_UP:
            self._warm[worker] = meter
        self._samples[worker] = fields.get("samples", 0)
        self._staleness[worker] = fields["staleness"]
        self._committed[worker] = fields["batch"]
        if "counts" in fields:
            self._recent.add(unpack_counts(fields["counts"]))
        for number, loss in fields["losses"]:
            batch = self.layout.train.batch_of(number)
            self._waiting.setdefault(batch, {})[number] = loss
        self._finish_batches()

    def recent(self) -> Tensor:
        """What progressive metrics are made of, as bytes, for a snapshot."""
        return torch.frombuffer(bytearray(self._recent.pack()), dtype=torch.uint8)

    def go_on_from(self, recent: Tensor | None) -> None:
        """Takes over what a snapshot had of it."""
        if recent is not None:
            self._recent.load(recent.numpy().tobytes())

    def begin(self, batch: int) -> None:
        """A segment starts: time that was spent otherwise does not count for the pace."""
        self.step = batch
        self._pace.clear()
        self._mark = None

    @property
    def mean_samples_per_s(self) -> float:
        """Over all segments, each from the end of its first batch on."""
        return self._counted / self._counted_s if self._counted_s else math.nan

    @property
    def counted_s(self) -> float:
        """The time that the mean is of."""
        return self._counted_s

    def work_of(self, stage: int) -> dict[int, Work]:
        """What the workers of a stage have done, and the time they computed for it."""
        places = enumerate(self.layout.workers)
        workers = [n for n, place in places if place[0] == stage and n in self._meters]
        return {n: Work(self._samples[n], _computed_s(self._meters[n])) for n in workers}

    @property
    def committed(self) -> int:
        """The last batch that a worker has said to be done; workers are a few apart at most."""
        return max(self._committed.values(), default=-1)

    @property
    def samples_per_s(self) -> float:
        """Over the last seconds."""
        if len(self._pace) < 2:
            return math.nan
        (began, first), (ended, last) = self._pace[0], self._pace[-1]
        return (last - first) / (ended - began) if ended > began else math.nan

    @property
    def batches_per_s(self) -> float:
        """Over the last seconds, or over those of earlier segments when this one has just begun."""
        rate = self.mean_samples_per_s if math.isnan(self.samples_per_s) else self.samples_per_s
        size = self.layout.train.micro_batch_size * self.layout.train.micro_batches
        return rate / size

    @property
    def batches_ahead(self) -> int:
        """That workers should know of: some seconds' work, so that they never wait for more."""
        pace = self.batches_per_s
        ahead = 0 if math.isnan(pace) else math.ceil(pace * _AHEAD_S)
        return max(LEAST_AHEAD + 2 * self.layout.staleness, ahead)

    def take_losses(self) -> tuple[int, list[float]]:
        """The losses of batches since the last call, and which the first of them was."""
        first, losses = self.losses_from, self._new
        self.losses_from, self._new = first + len(losses), []
        return first, losses

    def figures(self) -> list[dict[str, float]]:
        """Of each stage: seconds by purpose and samples, over its replicas on average."""
        own = {n: {**meter, "samples": self._samples[n]} for n, meter in self._meters.items()}
        return [_mean(own, workers) for workers in self._workers()]

    def measured(self) -> list[MeasuredStage | None]:
        """What a batch takes each stage, since its workers were warm."""
        before = self._warm if self._warm.keys() == self._meters.keys() else {}
        stages = [(_mean(before, own), _mean(self._meters, own)) for own in self._workers()]
        warm = [MeasuredStage.between(*moments) for moments in stages]
        if None not in warm:
            return warm
        return [MeasuredStage.between(None, now) for _, now in stages]

    @property
    def warm(self) -> bool:
        """Whether all workers have done their first batches, and some since."""
        workers = len(self.layout.workers)
        return len(self._warm) == workers and self._warm != self._meters

    def _workers(self) -> list[list[int]]:
        """The numbers of the workers of each stage."""
        places = list(enumerate(self.layout.workers))
        return [
            [n for n, place in places if place[0] == stage]
            for stage in range(len(self.layout.stages))
        ]

    @property
    def seconds(self) -> float:
        """Since the run began, without what lay between its generations."""
        return self._clock() - self._started

    def status(self) -> Status:
        seconds = self.seconds
        staleness: dict[str, int] = {}
        for counts in self._staleness.values():
            for batches, count in counts.items():
                staleness[batches] = staleness.get(batches, 0) + count
        return Status(
            self.step,
            self.layout.batches,
            self.samples,
            self.samples_per_s,
            self.loss,
            self._recent.values(),
            tuple(_busy(meter) for meter in self.figures()),
            seconds * self._dollars_per_s,
            seconds,
            staleness,
            self.validation,
        )

    def _finish_batches(self) -> None:
        """Counts batches whose every micro-batch has gone through the last stage."""
        plan, before = self.layout.train, self.samples
        while (found := self._waiting.get(self.step)) is not None:
            numbers = micro_batches_of(plan, self.step)
            if len(found) < len(numbers):
                break
            self.loss = sum(found[n] * micro_batch(plan, n).share for n in numbers)
            self._new.append(self.loss)
            self.samples += plan.batch_samples(self.step)
            del self._waiting[self.step]
            self.step += 1
        self._keep_time(before)

    def _keep_time(self, before: int) -> None:
        if self.samples == before:
            return
        now = self._clock()
        if self._mark is not None:
            self._counted_s += now - self._mark[0]
            self._counted += self.samples - self._mark[1]
        self._mark = (now, self.samples)
        self._pace.append(self._mark)


def _mean(meters: Mapping[int, Mapping[str, float]], workers: list[int]) -> dict[str, float]:
    """Over those of the workers that have been heard of."""
    own = [meters[n] for n in workers if n in meters]
    names = own[0] if own else {}
    return {name: sum(meter[name] for meter in own) / len(own) for name in names}


def _busy(meter: Mapping[str, float]) -> float:
    if not meter or not meter["wall_s"]:
        return 0.0
    return min(1.0, sum(meter[name] for name in BUSY) / meter["wall_s"])


def _computed_s(meter: Mapping[str, float]) -> float:
    return meter[FORWARD] + meter[BACKWARD]
