"""How well probabilities tell labels: what no model can beat when they are the true ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def auc(labels: Floats, scores: Floats) -> float:
    """The chance that a positive has a higher score than a negative; equal scores count half. NaN
    where one kind is missing.
    """
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2  # the mean rank of equal scores
    positive = labels > 0.5
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = float(middle[places[positive]].sum())
    return (ranks - positives * (positives + 1) / 2) / (positives * negatives)


def logloss(labels: Floats, probabilities: Floats) -> float:
    """Nats a sample."""
    chance = np.clip(probabilities.astype(np.float64), 1e-15, 1 - 1e-15)
    return float(-np.mean(np.where(labels > 0.5, np.log(chance), np.log1p(-chance))))
