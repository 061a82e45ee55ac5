"""What the loop of a worker asks of the one who started it, and tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Segment:
    """Batches that are to be done: up to ``end``, not included, and with ``closed`` no more."""

    end: int
    closed: bool


@dataclass
class Orders:
    """What the loop asks and tells while it runs."""

    segment: Callable[[], Segment]  # as it is now known
    progressed: Callable[[], None]
    committed: Callable[[int], None]
    waiting: Callable[[bool], None]  # nothing to do just now; whether all that is known of is done
