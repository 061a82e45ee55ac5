"""How long each piece of work takes on one replica of a stage, for one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heterps.planning.cost_model import Stage, transfer_time
from heterps.planning.problem import Problem

# Of compute, where the profile does not say: backward makes two matrix products and forward one.
FORWARD_SHARE = 1 / 3
ROWS_KIND = "embedding"
WEIGHTS_KIND = "fc"  # whose gradients of weights are made after those of its input


@dataclass(frozen=True)
class ServiceTimes:
    """Seconds. ``fetch_s`` is what a micro-batch needs before it goes forward beside its input (its
    rows, its samples), ``push_s`` the gradients of its rows. Half of a transfer is the activations,
    the other half their gradients. ``sync_s`` is paid once a batch. ``latency_s`` is paid once a
    message by each side, ``way_s`` once for both sides: the way between their hosts; neither
    occupies anybody. ``weights_s`` is the part of backward for the gradients of weights, which is
    done when there is nothing else to do: those of inputs and rows leave before it. ``rows``: the
    stage asks the parameter servers. ``sums``: it has weights, whose gradients its replicas sum up.
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
    latency_s: float = 0.0
    way_s: float = 0.0
    weights_s: float = 0.0
    rows: bool = False
    sums: bool = True

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
    problem: Problem, stage: Stage, units: int, micro_batches: int, beside_s: float = 0.0
) -> ServiceTimes:
    """Such that a replica that does its share of a batch takes what the cost model says, and
    ``beside_s`` longer for a micro-batch: what does not parallelise makes each of them slower."""
    layers = problem.profile.layers
    own = layers[stage.first : stage.last + 1]
    scale = problem.workload.batch_size / problem.profile.batch_size / micro_batches
    forward = backward = weighing = fetch = push = sync = 0.0
    for layer in own:
        on = layer.on[stage.type]
        seconds = on.compute_s * _slower(on.alpha, units)
        first = seconds * (FORWARD_SHARE if on.forward is None else on.forward)
        forward += first
        backward += seconds - first
        # One of the two products of backward.
        weighing += (seconds - first) / 2 if layer.kind == WEIGHTS_KIND else 0.0
        comm = on.comm_s * _slower(on.beta, units)
        pulled = 0.5 if layer.kind == ROWS_KIND else 1.0
        fetch += comm * pulled
        push += comm * (1 - pulled)
        sync += on.sync_s
    link_ms = next(t.link_ms for t in problem.cluster.types if t.name == stage.type)
    measured = problem.profile.types.get(stage.type)
    return ServiceTimes(
        type=stage.type,
        replicas=units,
        forward_s=scale * forward + beside_s / 2,
        backward_s=scale * backward + beside_s / 2,
        receive_s=scale * units * transfer_time(problem, stage.first, stage.type, units) / 2,
        fetch_s=scale * fetch,
        send_s=scale * units * transfer_time(problem, stage.last + 1, stage.type, units) / 2,
        push_s=scale * push,
        sync_s=sync,
        weights_s=scale * weighing,
        latency_s=(link_ms or 0.0) / 1e3,
        way_s=(measured.link_ms or 0.0) / 1e3 if measured else 0.0,
        rows=any(layer.kind == ROWS_KIND for layer in own),
        sums=any(layer.held_bytes > 0 for layer in own),
    )


def _slower(parallel: float, units: int) -> float:
    return units * (1 - parallel) + parallel
