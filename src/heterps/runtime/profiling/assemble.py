"""From what was measured to the figures of a profile. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heterps.job.resources import ResourceType
from heterps.models.trace import LayerTrace
from heterps.runtime.emulation import Clock, Emulation
from heterps.runtime.profiling.exchange import CutTimes, RowTimes, Traffic
from heterps.runtime.profiling.fit import Fit, fit_parallel
from heterps.runtime.profiling.layers import LayerTimes, at_ends
from heterps.runtime.profiling.observed import StageSeconds

# From one run to the next, either way. A replica works on micro-batches of its own: that something
# beside the optimizer's step does not parallelise has to show more clearly than that.
_NOISE = 0.05


@dataclass(frozen=True)
class Batches:
    """The batch size at which times are taken, and how many of them make a batch."""

    micro_batch_size: int
    micro_batches: int

    def micro_batch_s(self, seen: StageSeconds) -> float:
        """What the thread of a unit does for a micro-batch, its share of the step included."""
        return seen.work_s * self.micro_batch_size + seen.step_s / self.micro_batches


@dataclass(frozen=True)
class Moved:
    """What moves beside computing, the same for all types: rows by layer, cuts before layers, and
    the reading of a micro-batch."""

    rows: Mapping[str, RowTimes]
    cuts: Sequence[CutTimes]
    read_s: float


@dataclass(frozen=True)
class StageTotals:
    """Of the whole model as one stage of a type, for a batch: ``fit`` over unit counts of what its
    thread does, of which ``optimizer_s`` once a replica; ``sync_s`` is a commit's summing, which is
    work of that thread for the share ``summing``."""

    fit: Fit
    optimizer_s: float
    sync_s: float
    summing: float = 0.0

    @property
    def crowding(self) -> float:
        """How much longer a unit takes for each other one at work on its host, relative: what does
        not parallelise beside the optimizer's step."""
        step = self.optimizer_s / self.fit.seconds if self.fit.seconds else 0.0
        return max(0.0, round(1 - self.fit.parallel - step, 6))


def totals(
    trials: Mapping[int, StageSeconds],
    batches: Batches,
    exchange_s: Callable[[int], float | None] = lambda units: None,
) -> StageTotals:
    """From runs at several numbers of units, the first of them 1. ``exchange_s`` is for how long a
    commit takes the link of a unit, if it is known; otherwise the time that replicas were held up
    in commits counts, at the largest number of units: the sum, and waiting for the slowest."""
    size = batches.micro_batch_size * batches.micro_batches
    optimizer_s = min(seen.step_s for seen in trials.values())
    busy = {units: seen.work_s * size / units + optimizer_s for units, seen in trials.items()}
    serial = optimizer_s / busy[1] if busy[1] else 0.0
    found = fit_parallel(busy, otherwise=1 - serial, noise=_NOISE)
    most = max(trials)
    taken_s = exchange_s(most)
    # In memory that they share, replicas sum with their own threads: more work than one has alone.
    summing_s = max(0.0, trials[most].step_s - optimizer_s)
    held_up_s = trials[most].sync_s + summing_s if most > 1 else 0.0
    if taken_s is not None or not held_up_s:
        return StageTotals(found, optimizer_s, taken_s or 0.0)
    return StageTotals(found, optimizer_s, held_up_s, summing_s / held_up_s)


def figures(
    entry: ResourceType,
    layers: Sequence[LayerTrace],
    one: StageSeconds,
    times: LayerTimes,
    found: StageTotals,
    moved: Moved,
    batches: Batches,
    host_mbps: float | None = None,
) -> list[dict[str, Any]]:
    """The profile's figures of each layer on a type; ``one`` was seen on one unit. ``host_mbps`` is
    what was found between its host and others."""
    weights = _shares([0.0 if layer.table else layer.weight_bytes for layer in layers])
    both = _compute(layers, one, times, found, weights, moved, batches)
    compute = [ahead + back for ahead, back in both]
    whole = sum(compute)
    m = batches.micro_batches
    serial_s = (1 - found.fit.parallel) * found.fit.seconds / m
    stepping = min(serial_s, found.optimizer_s / m)
    over_s = partial(over_link_s, entry, host_mbps)
    entries = []
    for at, layer in enumerate(layers):
        share = compute[at] / whole if whole else 0.0
        serial = stepping * weights[at] + (serial_s - stepping) * share
        rows, read_s = moved.rows.get(layer.name), moved.read_s if at == 0 else 0.0
        comm = _comm(rows, read_s, over_s)
        cut = moved.cuts[at]
        entries.append(
            {
                "compute_s": compute[at],
                "comm_s": comm.seconds,
                "alpha": _clamped(1 - serial / compute[at]) if compute[at] else 1.0,
                "beta": comm.parallel,
                "transfer_s": over_s(cut.traffic) + cut.send_s + cut.receive_s,
                "sync_s": found.sync_s * weights[at],
                "forward": both[at][0] / compute[at] if compute[at] else None,
            }
        )
    return entries


def _compute(
    layers: Sequence[LayerTrace],
    one: StageSeconds,
    times: LayerTimes,
    found: StageTotals,
    weights: Sequence[float],
    moved: Moved,
    batches: Batches,
) -> list[tuple[float, float]]:
    """Seconds of each layer for a micro-batch, forward and backward: the stage's own, shared out.
    Asking for rows is a part of the first, giving their gradients and the step of the second."""
    forward, backward = _shares(times.forward_s), _shares(times.backward_s)
    asking = [
        moved.rows[each.name].traffic.moved_bytes if each.name in moved.rows else 0.0
        for each in layers
    ]
    rows = _shares(asking) if any(asking) else at_ends(len(layers))
    ends = at_ends(len(layers))
    size = batches.micro_batch_size
    step = found.optimizer_s / batches.micro_batches
    looping = [one.loop_s / 2 * share for share in ends]
    raw = [
        (
            size * (one.forward_s * forward[at] + one.ask_s * rows[at] + looping[at]),
            size * (one.backward_s * backward[at] + one.send_s * rows[at] + looping[at])
            + step * weights[at],
        )
        for at in range(len(layers))
    ]
    whole = sum(map(sum, raw))
    scale = found.fit.seconds / batches.micro_batches / whole if whole else 1.0
    return [(ahead * scale, back * scale) for ahead, back in raw]


def _comm(rows: RowTimes | None, read_s: float, over_s: Callable[[Traffic], float]) -> Fit:
    """Rows of a layer and the reading: what the servers take is shared by all, the rest is the
    unit's own."""
    if rows is None:
        return Fit(read_s, 1.0, None)
    served = fit_parallel({units: taken / units for units, taken in rows.seconds.items()})
    own = over_s(rows.traffic) + read_s
    seconds = served.seconds + own
    parallel = served.seconds * served.parallel + own
    return Fit(seconds, _clamped(parallel / seconds) if seconds else 1.0, served.residual)


def over_link_s(entry: ResourceType, host_mbps: float | None, traffic: Traffic) -> float:
    """For how long a unit's link is taken. An emulated one carries one thing after the other; one
    between hosts both ways at once, so that the busier way counts. The slower link is felt."""
    emulated_s = link_s(entry, traffic.moved_bytes)
    if host_mbps is None:
        return emulated_s
    return max(emulated_s, 8e-6 * max(traffic.there_bytes, traffic.back_bytes) / host_mbps)


def link_s(entry: ResourceType, size_bytes: float) -> float:
    """How long the emulated link of a unit is taken by so many bytes."""
    emulation = Emulation.of(entry, Clock(lambda: 0.0, lambda: 0.0, lambda seconds: None))
    emulation.carry(size_bytes, lambda: None)
    return emulation.carried_s


def _shares(values: Sequence[float]) -> list[float]:
    whole = sum(values)
    return [value / whole if whole else 0.0 for value in values]


def _clamped(share: float) -> float:
    return min(1.0, max(0.0, share))
