"""What a run measured of its stages, beside what was predicted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heterps.planning.cost_model import StageCost

CAUSES = ("input", "rows", "credit", "staleness", "gradients")
_PARTS = (
    "forward_s",
    "backward_s",
    "prepare_s",
    "send_s",
    "commit_s",
    "pull_s",
    "push_s",
    "link_s",
)

_WORK = ("forward_s", "backward_s", "prepare_s", "send_s", "predict_s")


@dataclass(frozen=True)
class MeasuredStage:
    """Seconds of one replica for a batch, on average over replicas and batches.

    Of its thread: ``forward_s``, ``backward_s``, ``prepare_s`` (reading, distinct ids, asking for
    rows), ``send_s`` (activations and gradients into messages), ``commit_s`` (summing over
    replicas, the optimizer's step, of which ``step_s`` is work and the rest waiting), ``waiting``
    by cause, and ``loop_s``, all else. Beside it:
    ``pull_s`` and ``push_s`` in which rows and their gradients were under way, ``link_s`` in which
    an emulated link was taken. ``batch_s`` is the time from batch to batch, ``calm`` the share of
    the work's time that it would have taken had nobody else used the machine.
    """

    batches: float
    batch_s: float
    forward_s: float
    backward_s: float
    prepare_s: float
    send_s: float
    commit_s: float
    pull_s: float
    push_s: float
    link_s: float
    waiting: Mapping[str, float]
    calm: float = 1.0
    step_s: float = 0.0

    @classmethod
    def between(
        cls, before: Mapping[str, float] | None, now: Mapping[str, float]
    ) -> MeasuredStage | None:
        """From the figures of a stage's meters at two moments, which count from their start on;
        None where no batch lies between."""

        def passed(name: str) -> float:
            return float(now.get(name, 0.0)) - float((before or {}).get(name, 0.0))

        batches, seconds = passed("batches"), passed("train_s")
        if batches <= 0 or seconds <= 0:
            return None
        # Work on the way is counted, batches are not until they are through: both by their time.
        committed_s = passed("committed_s")
        batch_s = (committed_s if committed_s > 0 else seconds) / batches
        begun = seconds / batch_s
        parts = {name: passed(name) / begun for name in _PARTS}
        waiting = {cause: passed(f"wait_{cause}_s") / begun for cause in CAUSES}
        worked = sum(passed(name) for name in _WORK)
        calm = min(1.0, passed("unit_s") / worked) if "unit_s" in now and worked > 0 else 1.0
        step_s = min(passed("step_s") / begun, parts["commit_s"])
        return cls(batches, batch_s, **parts, waiting=waiting, calm=calm, step_s=step_s)

    @property
    def loop_s(self) -> float:
        known = self._work_s + self.commit_s + sum(self.waiting.values())
        return max(0.0, self.batch_s - known)

    @property
    def compute_s(self) -> float:
        """What its thread does that nothing else can be done beside."""
        return self._work_s + self.loop_s + self.step_s

    @property
    def undisturbed_s(self) -> float:
        """The same without what others on the machine held it up for."""
        return self.calm * self._work_s + self.loop_s + self.step_s

    @property
    def _work_s(self) -> float:
        return self.forward_s + self.backward_s + self.prepare_s + self.send_s

    @property
    def comm_s(self) -> float:
        """Rows and gradients under way and the waiting in commits, or what its emulated link
        carried."""
        return max(self.link_s, self.pull_s + self.push_s + self.commit_s - self.step_s)

    @property
    def busy(self) -> float:
        """The share of its time that the thread works, or is held up in a commit."""
        return min(1.0, (self._work_s + self.loop_s + self.commit_s) / self.batch_s)

    @property
    def link_busy(self) -> float:
        return min(1.0, self.link_s / self.batch_s)

    def as_document(self) -> dict[str, Any]:
        own = {"loop_s": self.loop_s, "compute_s": self.compute_s, "comm_s": self.comm_s}
        return {**asdict(self), **own, "busy": self.busy, "link_busy": self.link_busy}


@dataclass(frozen=True)
class StageCheck:
    """One stage: what the cost model said, and what was measured; None where it is not known."""

    type: str
    units: int
    predicted: StageCost | None
    measured: MeasuredStage | None
    batch_size: int

    @property
    def capacity(self) -> float | None:
        """Samples per second that the stage would reach if no other held it up."""
        if self.measured is None:
            return None
        longest = max(self.measured.compute_s, self.measured.comm_s)
        return self.batch_size / longest if longest > 0 else None

    @property
    def errors(self) -> dict[str, float | None]:
        """Of the prediction, as a share of what was measured: below 0 it was too small."""
        said, seen = self.predicted, self.measured
        if said is None or seen is None:
            return dict.fromkeys(("compute", "comm", "throughput"))
        return {
            "compute": error(said.compute_s, seen.compute_s),
            "comm": error(said.comm_s, seen.comm_s),
            "throughput": error(said.throughput, self.capacity),
        }

    def as_document(self) -> dict[str, Any]:
        said = self.predicted
        predicted = said and {
            "compute_s": said.compute_s,
            "comm_s": said.comm_s,
            "throughput": said.throughput,
        }
        measured = self.measured and {**self.measured.as_document(), "throughput": self.capacity}
        place = {"type": self.type, "units": self.units}
        return {**place, "predicted": predicted, "measured": measured, "errors": self.errors}


def error(predicted: float | None, measured: float | None) -> float | None:
    """As a share of what was measured."""
    if predicted is None or not measured:
        return None
    return predicted / measured - 1


def check_stages(
    stages: Sequence[tuple[str, int]],
    predicted: Sequence[StageCost] | None,
    measured: Sequence[MeasuredStage | None],
    batch_size: int,
) -> tuple[StageCheck, ...]:
    """``stages`` are their types and units."""
    said: Sequence[StageCost | None] = predicted or [None] * len(stages)
    rows = zip(stages, said, measured, strict=True)
    return tuple(StageCheck(*place, cost, seen, batch_size) for place, cost, seen in rows)
