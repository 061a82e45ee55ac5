"""What to do when a process of a run has failed: looks at what happened, decides, does nothing.

```text
 a process ended, froze, or makes no progress     start all of them again from the last snapshot
 the same worker so often that its unit seems     the same, under a plan for one unit less of
 to be gone                                       its type
 so often in a row without progress               give up
 a process says that something is wrong           give up: it would be wrong again
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["ended", "frozen", "stuck", "lost", "wrong"]
Action = Literal["restart", "fewer", "give up"]

FROZEN_S = 4.0  # without a sign of life
STARVED_S = 20.0  # the same of one that waits for a processor or the disk
STUCK_S = 10.0  # without progress, at the least
STUCK_BATCHES = 10  # and so many times the predicted time of a batch
STUCK_IDLE_S = 1.0  # of it without anybody at work, and not just between two things
STUCK_AT_WORK = 30  # times as long where somebody is at work all the while: it may turn in circles
UNIT_LOST = 3  # failures of one worker in a row, after which its unit counts as lost


@dataclass(frozen=True)
class Failure:
    """``step`` is how far the run had got, ``saved`` the step of the snapshot that it then had.
    ``wrong`` is what a process says of its own work; the others are what is seen from outside."""

    process: str
    kind: Kind
    step: int
    problem: str = ""
    saved: int = 0


@dataclass(frozen=True)
class Decision:
    """``why`` is for the person."""

    action: Action
    why: str

    @property
    def again(self) -> bool:
        return self.action != "give up"


def decide(history: Sequence[Failure], retries: int, *, spare: bool = False) -> Decision:
    """``history`` holds all failures of the run so far, the newest last; ``retries`` is how often
    it may fail in a row without getting any further. ``spare``: the newest is a worker's, and the
    run can do with a unit less of its type."""
    newest = history[-1]
    if newest.kind == "wrong":
        return Decision("give up", f"{newest.process} would fail in the same way again")
    row = _row(history)
    count = len(row)
    if count > retries:
        furthest = max(failure.step for failure in row)
        why = f"{count} failures in a row without progress past step {furthest}"
        return Decision("give up", why)
    own = [failure.process == newest.process for failure in row[-UNIT_LOST:]]
    if spare and len(own) == UNIT_LOST and all(own):
        why = f"{newest.process} failed {UNIT_LOST} times in a row: its unit counts as lost"
        return Decision("fewer", why)
    return Decision("restart", f"failure {count} of at most {retries} in a row")


def _row(history: Sequence[Failure]) -> list[Failure]:
    """The last failures between which nothing was gained: neither a step that no attempt before
    had got to, nor a later snapshot."""
    row: list[Failure] = []
    furthest = saved = -1
    for failure in history:
        if failure.step > furthest or failure.saved > saved:
            row = []
        row.append(failure)
        furthest, saved = max(furthest, failure.step), max(saved, failure.saved)
    return row


def patience_s(predicted_batch_s: float | None) -> float:
    """How long no progress is no failure."""
    return max(STUCK_S, STUCK_BATCHES * (predicted_batch_s or 0.0))


def is_stuck(silent_s: float, idle_s: float, within_s: float) -> bool:
    """Whether no progress for ``silent_s`` is a failure. Where all have been idle for ``idle_s`` it
    is after ``within_s``; those that are at work on something large have more time."""
    if silent_s <= within_s + STUCK_IDLE_S:
        return False
    return idle_s > STUCK_IDLE_S or silent_s > STUCK_AT_WORK * within_s
