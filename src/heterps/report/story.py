"""What the events of a run tell of its speed and its troubles."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heterps.planning.measured import MeasuredStage
from heterps.report.runs import number

_WARM_UP = 2  # batches
_RECENT_S = 30.0


@dataclass(frozen=True)
class Moment:
    """A ``progress`` event: the meters of stages count from the start of their processes on."""

    time: float
    step: float
    samples: float
    stages: tuple[Mapping[str, float], ...]

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Moment | None:
        """None for one that is damaged, or of before the first batch."""
        time, step, samples = (number(event.get(name)) for name in ("time", "step", "samples"))
        stages = event.get("stages")
        if None in (time, step, samples) or not isinstance(stages, list) or not stages:
            return None
        meters = tuple(_meter(entry) for entry in stages)
        whole = all(meter.get("batches") for meter in meters)
        return cls(time, step, samples, meters) if whole else None


def _meter(entry: Any) -> dict[str, float]:
    held = entry if isinstance(entry, Mapping) else {}
    return {name: value for name, value in held.items() if number(value) is not None}


@dataclass
class Story:
    """``take`` every event in turn."""

    snapshots: int = 0
    last_snapshot: int | None = None
    stall_s: float = 0.0
    starts: int = 0
    replans: int = 0
    oversubscribed: bool = False
    troubles: list[str] = field(default_factory=list)
    first_loss: float | None = None
    last_loss: float | None = None
    dollars_per_hour: float | None = None
    _warm: Moment | None = None
    _recent: deque[Moment] = field(default_factory=deque)

    def take(self, event: Mapping[str, Any]) -> None:
        match event.get("kind"):
            case "ready":
                self.starts += 1
                self._warm = None
                self._recent.clear()
            case "progress":
                self._progress(event)
            case "snapshot":
                self.snapshots += 1
                self.last_snapshot = number(event.get("step"))
                self.stall_s += number(event.get("stall_s")) or 0.0
            case "replanned":
                self.replans += 1
            case "oversubscribed":
                self.oversubscribed = True
            case "failure" | "snapshot_failed" | "slow_replica" | "drift" | "warning" as kind:
                self.troubles.append(_trouble(str(kind), event))

    def _progress(self, event: Mapping[str, Any]) -> None:
        losses = event.get("losses")
        losses = [loss for loss in losses if number(loss) is not None] if losses else []
        if losses:
            self.first_loss = losses[0] if self.first_loss is None else self.first_loss
            self.last_loss = losses[-1]
        dollars, seconds = number(event.get("dollars")), number(event.get("seconds"))
        if dollars is not None and seconds:
            self.dollars_per_hour = dollars / seconds * 3600
        moment = Moment.of(event)
        if moment is None:
            return
        if self._warm is None and all(m["batches"] >= _WARM_UP for m in moment.stages):
            self._warm = moment
        self._recent.append(moment)
        while _has_old(self._recent):
            self._recent.popleft()

    def measured(self) -> list[MeasuredStage | None]:
        """What a batch takes each stage, since its workers were warm."""
        return _between(self._warm, self._recent[-1]) if self._recent else []

    def measured_lately(self) -> list[MeasuredStage | None]:
        """The same over the last seconds."""
        if not self._recent:
            return []
        lately = _between(self._recent[0], self._recent[-1])
        return self.measured() if None in lately else lately

    @property
    def samples_per_s(self) -> float | None:
        """Since the workers were warm; from batch to batch of the last stage."""
        found = self.measured()
        if not found or found[-1] is None:
            return None
        now, before = self._recent[-1], self._warm
        if before is None or now.step <= before.step:
            before = Moment(0.0, 0.0, 0.0, ())
        steps = now.step - before.step
        return (now.samples - before.samples) / steps / found[-1].batch_s if steps > 0 else None


def _has_old(recent: deque[Moment]) -> bool:
    return len(recent) > 2 and recent[1].time < recent[-1].time - _RECENT_S


def _between(before: Moment | None, now: Moment) -> list[MeasuredStage | None]:
    """From the start of the processes on where that is all there is."""
    stages = range(len(now.stages))
    if before is not None and len(before.stages) == len(now.stages):
        found = [MeasuredStage.between(before.stages[n], now.stages[n]) for n in stages]
        if None not in found:
            return found
    return [MeasuredStage.between(None, now.stages[n]) for n in stages]


def _trouble(kind: str, event: Mapping[str, Any]) -> str:
    step = number(event.get("step"))
    at = "" if step is None else f"step {step:,}: "
    times = number(event.get("times")) or 0.0
    ratio = number(event.get("ratio")) or 0.0
    said = {
        "failure": f"{event.get('problem')}; {event.get('action')}: {event.get('why')}",
        "snapshot_failed": f"no snapshot: {event.get('error')}",
        "slow_replica": f"{event.get('process')} took {times:.1f} times as long as its peers",
        "drift": f"{ratio:.0%} of the predicted throughput",
        "warning": str(event.get("text")),
    }
    return f"{at}{said[kind]}"
