"""What to do when a process of a run has failed: looks at what happened, decides, does nothing.

```text
 a process ended, froze, or makes no progress   start all of them again from the last snapshot
 the same so often in a row without progress    give up
 a process says that something is wrong         give up: it would be wrong again
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["ended", "frozen", "stuck", "lost", "wrong"]

FROZEN_S = 4.0  # without a sign of life
STUCK_S = 10.0  # without progress, at the least
STUCK_BATCHES = 10  # and so many times the predicted time of a batch


@dataclass(frozen=True)
class Failure:
    """``step`` is how far the run had got. ``wrong`` is what a process says of its own work; the
    others are what is seen from outside."""

    process: str
    kind: Kind
    step: int
    problem: str = ""


@dataclass(frozen=True)
class Decision:
    """``again`` from the last snapshot, or not at all; ``why`` is for the person."""

    again: bool
    why: str


def decide(history: Sequence[Failure], retries: int) -> Decision:
    """``history`` holds all failures of the run so far, the newest last; ``retries`` is how often
    it may fail in a row without getting any further."""
    newest = history[-1]
    if newest.kind == "wrong":
        return Decision(False, f"{newest.process} would fail in the same way again")
    row = 1
    for earlier, later in zip(reversed(history[:-1]), reversed(history), strict=False):
        if later.step > earlier.step:
            break
        row += 1
    if row > retries:
        return Decision(False, f"{row} failures in a row without progress past step {newest.step}")
    return Decision(True, f"failure {row} of at most {retries} in a row")


def patience_s(predicted_batch_s: float | None) -> float:
    """How long no progress is no failure."""
    return max(STUCK_S, STUCK_BATCHES * (predicted_batch_s or 0.0))
