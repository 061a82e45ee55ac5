"""How long each piece of work takes on one replica of a stage, for one micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heterps.planning.cost_model import Stage, amdahl, transfer_time
from heterps.planning.problem import Problem
from heterps.planning.profile import LayerProfile, Moved

# Of compute, where the profile does not say: backward makes two matrix products and forward one.
FORWARD_SHARE = 1 / 3
ROWS_KIND = "embedding"
WEIGHTS_KIND = "fc"  # whose gradients of weights are made after those of its input


@dataclass(frozen=True)
class Sizes:
    """Bytes of a micro-batch: activations that go on, gradients that go back; ids that ask for
    rows, the rows, and their gradients."""

    on: float = 0.0
    back: float = 0.0
    ask: float = 0.0
    rows: float = 0.0
    push: float = 0.0


@dataclass(frozen=True)
class ServiceTimes:
    """Seconds. ``fetch_s`` is what a micro-batch needs before it goes forward beside its input (its
    rows, its samples), ``push_s`` the gradients of its rows. Half of a transfer is the activations,
    the other half their gradients. ``sync_s`` is paid once a batch beside compute, and ``sum_s``
    after it, by the thread. ``latency_s`` is paid once a message by each side, ``way_s`` once for
    both sides: the way between their hosts; neither occupies anybody. ``weights_s`` is the part of
    backward for the gradients of weights, which is done when there is nothing else to do: those of
    inputs and rows leave before it. ``rows``: the stage asks the parameter servers. ``sums``: it
    has weights, whose gradients its replicas sum up. ``sizes`` are those of messages, where the
    ports of hosts carry them: what a port takes is then in no other time.
    """

    type: str
    replicas: int
    forward_s: float
    backward_s: float
    receive_s: float = 0.0
    fetch_s: float = 0.0
    send_s: float = 0.0
    push_s: float = 0.0
    sync_s: float = 0.0
    sum_s: float = 0.0
    latency_s: float = 0.0
    way_s: float = 0.0
    weights_s: float = 0.0
    rows: bool = False
    sums: bool = True
    sizes: Sizes = Sizes()

    @property
    def compute_s(self) -> float:
        return self.forward_s + self.backward_s

    @property
    def comm_s(self) -> float:
        """Without what is paid once a batch."""
        return 2 * (self.receive_s + self.send_s) + self.fetch_s + self.push_s

    def overlapping(self, share: float) -> ServiceTimes:
        """The same where only that share of communication runs beside compute: the rest is work of
        the thread that computes."""
        own = 1 - share
        before = self.receive_s + self.fetch_s + self.send_s
        after = self.receive_s + self.push_s + self.send_s
        return replace(
            self,
            forward_s=self.forward_s + own * before,
            backward_s=self.backward_s + own * after,
            receive_s=self.receive_s * share,
            fetch_s=self.fetch_s * share,
            send_s=self.send_s * share,
            push_s=self.push_s * share,
        )


def service_times(
    problem: Problem,
    stage: Stage,
    units: int,
    micro_batches: int,
    beside_s: float = 0.0,
    crowd: float = 0.0,
    *,
    ports: bool = False,
) -> ServiceTimes:
    """Such that a replica that does its share of a batch takes what the cost model says, and
    ``beside_s`` longer for a micro-batch: what does not parallelise makes each of them slower. So
    do others on its host, by the share ``crowd``. ``ports``: those of hosts are on their own."""
    layers = problem.profile.layers
    own = layers[stage.first : stage.last + 1]
    scale = problem.workload.batch_size / problem.profile.batch_size / micro_batches
    entry = next(t for t in problem.cluster.types if t.name == stage.type)
    measured = problem.profile.types.get(stage.type)
    # An emulated link is slower than the port: what it takes is not the port's.
    port_mbps = measured.link_mbps if ports and measured and entry.link_mbps is None else None
    summing = measured.summing if measured else 0.0
    forward = backward = weighing = fetch = push = sync = 0.0
    for layer in own:
        on = layer.on[stage.type]
        seconds = on.compute_s * (_slower(on.alpha, units) + crowd)
        first = seconds * (FORWARD_SHARE if on.forward is None else on.forward)
        forward += first
        backward += seconds - first
        # One of the two products of backward.
        weighing += (seconds - first) / 2 if layer.kind == WEIGHTS_KIND else 0.0
        # What the servers share is the part that does not parallelise.
        comm = max(0.0, on.comm_s * _slower(on.beta, units) - _port_s(layer.rows, port_mbps))
        pulled = 0.5 if layer.kind == ROWS_KIND else 1.0
        fetch += comm * pulled
        push += comm * (1 - pulled)
        sync += on.sync_s

    def crossing(border: int) -> float:
        """Of one side, for what goes on or for what goes back."""
        seconds = transfer_time(problem, border, stage.type, units)
        if not seconds:
            return 0.0
        cut = _port_s(layers[border].cut, port_mbps)
        beta = _beta(layers[border], stage.type)
        return units * max(0.0, seconds - amdahl(cut, beta, units)) / 2

    return ServiceTimes(
        type=stage.type,
        replicas=units,
        forward_s=scale * forward + beside_s / 2,
        backward_s=scale * backward + beside_s / 2,
        receive_s=scale * crossing(stage.first),
        fetch_s=scale * fetch,
        send_s=scale * crossing(stage.last + 1),
        push_s=scale * push,
        sync_s=(1 - summing) * sync,
        sum_s=summing * sync,
        weights_s=scale * weighing,
        latency_s=(entry.link_ms or 0.0) / 1e3,
        way_s=(measured.link_ms or 0.0) / 1e3 if measured else 0.0,
        rows=any(layer.kind == ROWS_KIND for layer in own),
        sums=any(layer.held_bytes > 0 for layer in own),
        sizes=_sizes(layers, stage, scale) if ports else Sizes(),
    )


def _sizes(layers: Sequence[LayerProfile], stage: Stage, scale: float) -> Sizes:
    before = layers[stage.first].cut if stage.first else None
    after = layers[stage.last + 1].cut if stage.last + 1 < len(layers) else None
    rows = [layer.rows for layer in layers[stage.first : stage.last + 1] if layer.rows]
    back = sum(each.back_bytes for each in rows)
    ids = sum(each.there_bytes - each.back_bytes for each in rows) / 2
    return Sizes(
        on=scale * after.there_bytes if after else 0.0,
        back=scale * before.back_bytes if before else 0.0,
        ask=scale * ids,
        rows=scale * back,
        push=scale * (ids + back),
    )


def _port_s(moved: Moved | None, mbps: float | None) -> float:
    """Of what a port between hosts takes for the busier way, as the profile counts it."""
    if moved is None or not mbps:
        return 0.0
    return 8e-6 * max(moved.there_bytes, moved.back_bytes) / mbps


def _beta(layer: LayerProfile, type_name: str) -> float:
    return (layer.on.get(type_name) or layer.send[type_name]).beta


def _slower(parallel: float, units: int) -> float:
    return units * (1 - parallel) + parallel
