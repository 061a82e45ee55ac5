"""What bounds a run, told from where the time of its workers went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heterps.planning.measured import MeasuredStage

_SATURATED = 0.85  # a thread or a link that is taken for this share of the time sets the pace
_HARDLY = 0.1


@dataclass(frozen=True)
class PlacedStage:
    """A stage of a run: where it is, and what its replicas did for a batch. ``layers`` are names
    with the share of the stage's compute that each has by the profile; empty without one."""

    title: str
    measured: MeasuredStage
    layers: Sequence[tuple[str, float]] = ()
    has_rows: bool = True


@dataclass(frozen=True)
class Bound:
    """``by`` is reading, lookup, network, compute, commit or pipeline; ``text`` a sentence."""

    by: str
    stage: int
    text: str

    def as_document(self) -> dict[str, Any]:
        return asdict(self)


def find_bound(stages: Sequence[PlacedStage], staleness: int) -> Bound | None:
    """None where nothing was measured."""
    if not stages:
        return None
    at = max(range(len(stages)), key=lambda n: _taken(stages[n].measured))
    own = stages[at]
    if own.measured.link_busy >= max(_SATURATED, own.measured.busy):
        taken = f"the link of {own.title} is taken {_percent(own.measured.link_busy)} of the time"
        return Bound("network", at, f"network: {taken}")
    if own.measured.busy >= _SATURATED:
        return _by_work(at, own)
    return _by_waiting(stages, at, staleness)


def _taken(seen: MeasuredStage) -> float:
    return max(seen.busy, seen.link_busy)


def _by_work(at: int, stage: PlacedStage) -> Bound:
    """Of a stage whose threads are always at work: at what?"""
    seen = stage.measured
    parts = {
        "compute": seen.forward_s + seen.backward_s,
        "lookup": seen.prepare_s,
        "network": seen.send_s,
        "commit": seen.commit_s,
    }
    by = max(parts, key=lambda name: parts[name])
    share = _percent(parts[by] / seen.batch_s)
    works = f"{stage.title} works {_percent(seen.busy)} of the time"
    doing = {
        "compute": f"{share} in forward and backward{_heaviest(stage)}",
        "lookup": f"{share} in reading and asking for rows",
        "network": f"{share} in sending activations and gradients",
        "commit": f"{share} in commits, which sum gradients over its replicas and step",
    }
    return Bound(by, at, f"{by}: {works}, {doing[by]}")


def _heaviest(stage: PlacedStage) -> str:
    if not stage.layers:
        return ""
    name, share = max(stage.layers, key=lambda entry: entry[1])
    if len(stage.layers) == 1:
        return f" of {name}"
    return f"; by the profile {name} is {_percent(share)} of that"


def _by_waiting(stages: Sequence[PlacedStage], at: int, staleness: int) -> Bound:
    """No stage is always at work: what does the busiest wait for, or whom it waits for?"""
    while at > 0 and _cause(stages[at]) == "input":
        at -= 1
    stage, cause = stages[at], _cause(stages[at])
    share = stage.measured.waiting[cause] / stage.measured.batch_s
    waits = f"{stage.title} waits {_percent(share)} of its time for"
    if share >= _HARDLY and cause == "input":
        return Bound("reading", at, f"reading: {waits} data")
    if share >= _HARDLY and cause == "rows":
        if not stage.has_rows or stage.measured.link_busy > 0.5:
            return Bound("network", at, f"network: {waits} what is on its link")
        return Bound("lookup", at, f"lookup: {waits} rows of the parameter servers")
    return _pipeline(stages, staleness)


def _cause(stage: PlacedStage) -> str:
    waiting = stage.measured.waiting
    return max(waiting, key=lambda cause: waiting[cause])


def _pipeline(stages: Sequence[PlacedStage], staleness: int) -> Bound:
    at = max(range(len(stages)), key=lambda n: _taken(stages[n].measured))
    busy = f"{stages[at].title} is the busiest, at work {_percent(stages[at].measured.busy)}"
    fix = "more micro-batches would fill the gaps"
    if staleness == 0:
        fix = "a staleness, or more micro-batches, would fill the gaps between batches"
    if len(stages) == 1:
        fix = "what is left goes to the loop itself and to other processes of the machine"
    return Bound("pipeline", at, f"pipeline: no stage is at work all the time; {busy}; {fix}")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
