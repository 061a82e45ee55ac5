"""What a run has come to, beside its weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Standing:
    """Goes from generation to generation, and into every snapshot. ``step`` is the next batch."""

    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    metrics: dict[str, float] | None = None  # of the last validation
    best: dict[str, float] | None = None
    worse: int = 0  # validations since the best one
    stopped_early: bool = False
