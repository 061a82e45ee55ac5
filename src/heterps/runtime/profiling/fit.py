"""Which share of a time parallelises, from times at several numbers of units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """``seconds`` on one unit, of which ``parallel`` is the share that parallelises; ``residual``
    is the largest deviation of a measured time from it, relative, and None with one time only."""

    seconds: float
    parallel: float
    residual: float | None

    def at(self, units: int) -> float:
        return self.seconds * (1 - self.parallel + self.parallel / units)


def fit_parallel(times: Mapping[int, float], otherwise: float = 1.0, noise: float = 0.0) -> Fit:
    """Least squares over x(1 - f + f/k), relative to each time, with f clamped to [0, 1]. The share
    is ``otherwise`` with one number of units alone, and where that fits all times up to ``noise``,
    relative: what does not parallelise grows with units, and so would noise that is taken for it.
    """
    units = np.array(sorted(times), float)
    found = np.array([times[int(k)] for k in units])
    if len(units) == 1 or not found.min() > 0:
        only = float(found[0])
        scale = 1 - otherwise + otherwise / float(units[0])
        return Fit(only / scale if scale > 0 else only, otherwise, None)
    known = _with_share(otherwise, times)
    if known.residual is not None and known.residual <= noise:
        return known
    columns = np.stack([1 / found, 1 / units / found], axis=1)
    (serial, parallel), *_ = np.linalg.lstsq(columns, np.ones(len(units)), rcond=None)
    share = 1.0 if serial <= 0 else 0.0 if parallel <= 0 else parallel / (serial + parallel)
    return _with_share(float(share), times)


def _with_share(share: float, times: Mapping[int, float]) -> Fit:
    """The seconds that go best with a share."""
    units, found = np.array(list(times), float), np.array(list(times.values()))
    shape = (1 - share + share / units) / found
    seconds = float(shape.sum() / (shape @ shape))
    fit = Fit(seconds, share, None)
    residual = max(abs(fit.at(k) / time - 1) for k, time in times.items())
    return Fit(seconds, share, residual)
