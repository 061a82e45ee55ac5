"""What a run's own figures say of its stages: read from its events, so of any run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from heterps.errors import InputError
from heterps.events import read_events
from heterps.runtime.meter import BACKWARD, COMMIT, FORWARD, PREDICT, PREPARE, SEND, WAIT

_EVENTS = "events.jsonl"
_WARM_UP = 0.25  # of the time of a run, which does not count
_WORK = (FORWARD, BACKWARD, PREPARE, SEND)


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of one replica for each sample that it worked on, without what others on the machine
    held it up for. ``step_s`` and ``sync_s`` are for each batch: the work of a commit, and its
    waiting. ``loop_s`` is what is neither work nor waiting, ``link_s`` what its emulated link was
    taken for, and ``spread`` the relative deviation of its work from second to second."""

    forward_s: float
    backward_s: float
    ask_s: float
    send_s: float
    step_s: float
    sync_s: float
    loop_s: float
    link_s: float
    spread: float

    @property
    def work_s(self) -> float:
        """Of the thread that computes, commits left out."""
        return self.forward_s + self.backward_s + self.ask_s + self.send_s + self.loop_s


def observe(folder: Path) -> list[StageSeconds]:
    """Of each stage of a run, by its last generation. Raises InputError for a run that is too short
    to say anything."""
    events = list(read_events(folder / _EVENTS))
    starts = [at for at, event in enumerate(events) if event["kind"] == "ready"]
    told = [
        event["stages"]
        for event in events[starts[-1] if starts else 0 :]
        if event["kind"] == "progress" and event["stages"] and all(event["stages"])
    ]
    if told and "unit_s" not in told[0][0]:
        raise InputError(str(folder), "was made by an earlier version: its events say too little")
    stages = len(told[0]) if told else 0
    found = [_stage([each[stage] for each in told]) for stage in range(stages)]
    if not found or None in found:
        raise InputError(str(folder), "is too short: let it run for some seconds")
    return [stage for stage in found if stage is not None]


def mean_of(seen: Sequence[StageSeconds]) -> StageSeconds:
    """Figure by figure."""
    each = [asdict(one) for one in seen]
    return StageSeconds(**{name: statistics.mean(one[name] for one in each) for name in each[0]})


def _stage(told: Sequence[Mapping[str, Any]]) -> StageSeconds | None:
    """From sums so far, each of which is the mean over the replicas."""
    until = told[-1]["wall_s"]
    begun = min(each["wall_s"] for each in told)
    late = [each for each in told if each["wall_s"] >= begun + _WARM_UP * (until - begun)]
    kept = _growing(late) if len(_growing(late)) > 1 else _growing(told)
    if len(kept) < 2:
        return None
    first, last = kept[0], kept[-1]
    samples = last["samples"] - first["samples"]
    mean = {name: (last[name] - first[name]) / samples for name in last if name in first}
    worked = sum(mean[name] for name in (*_WORK, PREDICT))
    calm = min(1.0, mean["unit_s"] / worked) if worked else 1.0
    sums = [sum(_per_sample(a, b, name) for name in _WORK) for a, b in pairwise(kept)]
    spread = statistics.stdev(sums) / statistics.mean(sums) if len(sums) > 1 else 0.0
    return StageSeconds(
        calm * mean[FORWARD],
        calm * mean[BACKWARD],
        calm * mean[PREPARE],
        calm * mean[SEND],
        _a_batch(first, last, "step_s"),
        _waited(kept),
        max(0.0, mean["wall_s"] - worked - mean[COMMIT] - mean[WAIT]),
        mean.get("link_s", 0.0),
        spread,
    )


def _a_batch(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    return float((after[name] - before[name]) / max(1.0, after["batches"] - before["batches"]))


def _waited(told: Sequence[Mapping[str, Any]]) -> float:
    """In a commit, as a rule: the median from one look to the next with a commit in between."""
    committed = [told[0]]
    committed += [b for a, b in pairwise(told) if b["batches"] > a["batches"]]
    waits = [_a_batch(a, b, COMMIT) - _a_batch(a, b, "step_s") for a, b in pairwise(committed)]
    return max(0.0, statistics.median(waits)) if waits else 0.0


def _growing(told: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [told[0], *(b for a, b in pairwise(told) if b["samples"] > a["samples"])]


def _per_sample(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    return float((after[name] - before[name]) / (after["samples"] - before["samples"]))
