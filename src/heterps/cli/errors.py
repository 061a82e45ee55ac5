"""How an error looks: one line on standard error, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from heterps.errors import HeterPSError, InfeasibleError

FAILED, INFEASIBLE = 1, 3


def print_error(message: str) -> None:
    print(f"heterps: {' '.join(message.split())}", file=sys.stderr)


def exit_code(error: HeterPSError) -> int:
    return INFEASIBLE if isinstance(error, InfeasibleError) else FAILED


def worst(codes: Iterable[int]) -> int:
    """An error outweighs a problem without a plan, and that outweighs success."""
    seen = set(codes)
    return FAILED if FAILED in seen else INFEASIBLE if INFEASIBLE in seen else 0
