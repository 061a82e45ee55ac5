"""How an error looks: one line on standard error, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress

from heterps.errors import HeterPSError, InfeasibleError

FAILED, INFEASIBLE, INTERRUPTED = 1, 3, 130


class InterruptedEarlyError(HeterPSError):
    """By Ctrl-C, before there was anything to show."""


def print_error(message: str) -> None:
    print(f"heterps: {' '.join(message.split())}", file=sys.stderr)


def print_notice(line: str) -> None:
    """In any thread. A bar that is on the terminal moves below it: rich stands in for standard
    error meanwhile."""
    with suppress(OSError):  # nobody may be there to read it
        sys.stderr.write(f"{' '.join(line.split())}\n")
        sys.stderr.flush()


def exit_code(error: HeterPSError) -> int:
    if isinstance(error, InterruptedEarlyError):
        return INTERRUPTED
    return INFEASIBLE if isinstance(error, InfeasibleError) else FAILED


def worst(codes: Iterable[int]) -> int:
    """Ctrl-C outweighs an error, that a problem without a plan, and that success."""
    seen = set(codes)
    return next((code for code in (INTERRUPTED, FAILED, INFEASIBLE) if code in seen), 0)
