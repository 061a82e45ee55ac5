"""What the policy sees of a problem: one row per (layer, type).

First the five features of the paper (index, kind, input size, weight size, communication time),
alike for every type, then figures of the type relative to the other types, among them what a
relaxed shortest path says of putting the layer on the type. Nothing depends on the number or the
order of types, so one set of weights serves every cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Kernel

INDEX_BINS = 64
KINDS = (
    "embedding",
    "fc",
    "relu",
    "norm",
    "attention",
    "pool",
    "concat",
    "dropout",
    "cosine",
    "softmax",
    "loss",
)
_TINY = 1e-12


@dataclass(frozen=True)
class Features:
    """``layer`` is [layers, LAYER_WIDTH], ``pair`` [layers, types, PAIR_WIDTH], ``runs`` the mask
    of the types that can be chosen for a layer."""

    layer: NDArray[np.float32]
    pair: NDArray[np.float32]
    runs: NDArray[np.bool_]


def features_of(kernel: Kernel) -> Features:
    profile = kernel.problem.profile
    layer = layer_features(
        [entry.kind for entry in profile.layers],
        np.array([entry.input_bytes for entry in profile.layers], np.float64),
        np.array([entry.weight_bytes for entry in profile.layers], np.float64),
        kernel,
    )
    return Features(layer, pair_features(kernel), usable(kernel))


def usable(kernel: Kernel) -> NDArray[np.bool_]:
    """Where a layer may be placed; a layer with no usable type keeps all, so that sampling works
    and the provisioner says what is wrong."""
    runs = (kernel.runs > 0) & (kernel.limit > 0)[None]
    return np.where(runs.any(axis=1, keepdims=True), runs, True)


def layer_features(
    kinds: list[str],
    input_bytes: NDArray[np.float64],
    weight_bytes: NDArray[np.float64],
    kernel: Kernel,
) -> NDArray[np.float32]:
    count = len(kinds)
    index = np.arange(count)
    bins = index if count <= INDEX_BINS else index * INDEX_BINS // count
    known = {kind: number for number, kind in enumerate(KINDS)}
    kind_number = np.array([known.get(kind, len(KINDS)) for kind in kinds])
    runs = kernel.runs > 0
    comm = np.where(runs, kernel.comm + kernel.sync, 0).sum(1) / np.maximum(runs.sum(1), 1)
    comm_log = np.log(comm + 1e-9 * comm.max() + _TINY)
    return np.concatenate(
        [
            np.eye(INDEX_BINS)[bins],
            np.eye(len(KINDS) + 1)[kind_number],
            np.log1p(input_bytes)[:, None] / 10,
            np.log1p(weight_bytes)[:, None] / 20,
            (comm_log - comm_log.mean())[:, None] / 4,
            (index / count)[:, None],
            np.full((count, 1), count / INDEX_BINS),
        ],
        axis=1,
    ).astype(np.float32)


def pair_features(kernel: Kernel) -> NDArray[np.float32]:
    runs = usable(kernel)
    shape = runs.shape
    limit = np.maximum(kernel.limit, 1)[None].astype(np.float64)
    busy = np.maximum(kernel.compute, kernel.comm + kernel.sync)
    serial = np.maximum(
        kernel.compute * (1 - kernel.alpha), kernel.comm * (1 - kernel.beta) + kernel.sync
    )
    money = kernel.price[None] * busy
    cheapest = np.where(runs, money, np.inf).min(1, keepdims=True)
    is_cheapest = runs & (money <= cheapest * 1.05)
    has_floor = np.isfinite(kernel.max_period_s)
    period = kernel.max_period_s if has_floor else max(float(serial.sum(0).max()), _TINY)
    total_money = np.where(runs, money, 0).sum(0, keepdims=True)
    wanted = np.where(is_cheapest, busy, 0).sum(0, keepdims=True)
    columns = [
        _log(money, cheapest),
        _log(money, _mean(money, runs)),
        _log(kernel.compute, _mean(kernel.compute, runs)),
        _log(kernel.comm + kernel.sync, _mean(kernel.comm + kernel.sync, runs)),
        _log(kernel.comm + kernel.sync, kernel.compute),
        _log(kernel.price[None] * kernel.transfer, cheapest),
        _log(kernel.transfer, busy),
        _log(kernel.price[None], _mean(np.broadcast_to(kernel.price[None], shape), runs)),
        _log(busy, limit * period),
        _log(serial, period),
        _log(kernel.transfer * (1 - kernel.transfer_beta), period),
        _log(np.where(runs, busy, 0).sum(0, keepdims=True), limit * period),
        _log(wanted, limit * period),
        _log(total_money, total_money.min()),
        np.log(limit) / 4,
        np.log(1 - np.minimum(kernel.alpha, 1 - 1e-6)) / 4,
        np.log(1 - np.minimum(kernel.beta, 1 - 1e-6)) / 4,
        is_cheapest,
        runs,
        np.full(shape, float(has_floor)),
        *_outlook_columns(kernel),
    ]
    stacked = np.stack([np.broadcast_to(column, shape) for column in columns], axis=2)
    return stacked.astype(np.float32)


LAYER_WIDTH = INDEX_BINS + len(KINDS) + 1 + 5
PAIR_WIDTH = 20 + 4 + 3


def _outlook_columns(kernel: Kernel) -> list[NDArray[np.float64]]:
    """How much dearer the cheapest plan gets when the layer is put on the type, at the most
    promising period, a tenth to either side of it, and at the floor; priced by shortest paths that
    see the limits only through prices on units. Then where these periods stand and what each
    costs, alike for all."""
    shape = kernel.runs.shape
    periods, costs, forced = kernel.search().outlook()
    if not periods:
        return [np.zeros(shape) for _ in range(7)]
    table = np.array(forced).reshape(len(periods), *shape)
    columns: list[NDArray[np.float64]] = []
    for level, cost in zip(table, costs, strict=True):
        least = cost if np.isfinite(cost) and cost > 0 else np.inf
        finite = np.isfinite(level)
        ratio = np.divide(level, least, where=finite, out=np.full(shape, 11.0))
        columns.append(np.minimum(np.log1p(100 * np.maximum(ratio - 1, 0)) / 4, 1.5))
    relative = np.array([costs[0], costs[2], costs[3]]) / max(costs[1], _TINY)
    relative = np.where(np.isfinite(relative), np.clip(relative - 1, -0.1, 1), 1.0)
    return columns + [np.full(shape, value) for value in relative]


def _log(value: NDArray[np.float64], base: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """How many times ``base``, on a logarithmic scale and clipped: times span many orders."""
    scaled: NDArray[np.float64] = np.clip(np.log((value + _TINY) / (base + _TINY)), -8, 8) / 3
    return scaled


def _mean(value: NDArray[np.float64], runs: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The geometric mean over the types that can run the layer."""
    logs = np.where(runs, np.log(value + _TINY), 0).sum(1, keepdims=True)
    mean: NDArray[np.float64] = np.exp(logs / runs.sum(1, keepdims=True))
    return mean
