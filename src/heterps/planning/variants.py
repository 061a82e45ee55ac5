"""The same problem with a limit, a price, the floor or the allowed types changed."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Kernel


def variant(
    kernel: Kernel,
    *,
    limit: NDArray[np.int64] | None = None,
    price: NDArray[np.float64] | None = None,
    max_period_s: float | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> Kernel:
    """A kernel with other limits, other prices, another longest period, or fewer types that may run
    a layer (``allowed`` is [layers, types]); what it leaves out stays as it is.
    """
    other = copy.copy(kernel)
    if limit is not None:
        other.limit = limit
    if price is not None:
        other.price = price
    if max_period_s is not None:
        other.max_period_s = max_period_s
    if allowed is not None:
        other.runs = (kernel.runs.astype(np.bool_) & allowed).astype(np.uint8)
        other.reach = _cut(kernel.reach, other.runs)
    other.native = other.build()
    return other


def _cut(reach: NDArray[np.int32], runs: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Stages end at the first layer that their type may not run."""
    layers = len(runs)
    barred = np.where(runs == 0, np.arange(layers)[:, None], layers)
    first_barred = np.minimum.accumulate(barred[::-1], axis=0)[::-1]
    return np.ascontiguousarray(np.minimum(reach, first_barred), np.int32)
