"""How many units each stage of a given assignment gets.

``provision`` is exact. ``provision_balanced`` is the paper's way (equal stage throughputs in the
continuous, then rounding) and ``provision_static`` the fixed ratio of units that hand-made set-ups
use; both are there for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heterps.planning.feasibility import why_assignment_infeasible
from heterps.planning.plan import Plan, make_plan
from heterps.planning.problem import Problem


def provision(problem: Problem, assignment: Sequence[str], method: str = "assignment") -> Plan:
    """The cheapest units for the assignment. Raises InfeasibleError."""
    indices = np.array(problem.type_indices(assignment), np.int32)
    result = problem.kernel.provision(indices[None])
    status = int(result.status[0])
    if status:
        raise why_assignment_infeasible(problem, indices, status, float(result.period_s[0]))
    units = [int(k) for k in result.units[0] if k]
    return make_plan(problem, method, assignment, units, evaluations=1)
