"""How good plans are, as one number that a learner or a search can climb."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Provisions

# Scores of feasible plans stay below this, those of others start here.
_INFEASIBLE = 3.0
# Indexed by status: a plan that misses only the floor is closer to a solution than one that puts a
# layer where it cannot run.
_SEVERITY = np.array([0.0, 3.0, 2.0, 1.0, 0.0])


def scores(provisions: Provisions, reference: float) -> NDArray[np.float64]:
    """Lower is better: log(cost / reference), flattened where it passes 1, and for plans that break
    a constraint a penalty above all of those, graded by how far they are from keeping it.

    ``reference`` is the cost of a known plan (dollars, above 0).
    """
    feasible = provisions.feasible
    cost = np.where(feasible, np.maximum(provisions.cost, 1e-300), reference)
    score = _flattened(np.log(cost / reference))
    graded = _INFEASIBLE + _SEVERITY[provisions.status]
    graded += np.log1p(np.minimum(provisions.violation, 1e6))
    return np.where(feasible, score, graded)


def measured_score(cost: float, reference: float, missed: float) -> float:
    """The same of a plan that was run: ``missed`` is by how much of its throughput it was below the
    floor, 0 where it kept it."""
    if missed > 0:
        return _INFEASIBLE + float(np.log1p(missed))
    return float(_flattened(np.log(np.array(cost / reference))))


def _flattened(score: NDArray[np.float64]) -> NDArray[np.float64]:
    over = np.maximum(score - 1, 0)
    flat: NDArray[np.float64] = np.minimum(score, 1) + over / (1 + over / (_INFEASIBLE - 1))
    return flat
