"""How good plans are, as one number that a learner or a search can climb."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heterps.planning.kernel import Provisions

# A plan that breaks a constraint scores at least this much worse than the reference, in log cost;
# the order is that of the reasons, and within a reason less violation is better.
_INFEASIBLE = 1.0


def scores(provisions: Provisions, reference: float) -> NDArray[np.float64]:
    """Lower is better: log(cost / reference), or a graded penalty above every sensible cost.

    ``reference`` is the cost of a known plan (dollars, above 0). Graded means that a plan a little
    over a limit is better than one far over it, so that there is a way back.
    """
    with np.errstate(divide="ignore"):
        score = np.log(np.maximum(provisions.cost, 1e-300) / reference)
    broken = ~provisions.feasible
    severity = np.array([0.0, 3.0, 2.0, 1.0, 0.0])[provisions.status]
    graded = _INFEASIBLE + severity + np.log1p(np.minimum(provisions.violation, 1e6))
    return np.where(broken, graded, np.minimum(score, _INFEASIBLE + 0.5))
