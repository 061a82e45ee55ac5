"""What a simulated run has to cope with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

_AT_ONCE = 8192  # factors that are drawn


@dataclass(frozen=True)
class Conditions:
    """``jitter`` is the sigma of a lognormal factor of mean 1 on every time; ``slow`` multiplies
    the compute of (stage, replica); ``server_s`` is what all parameter servers together take for
    the rows of a micro-batch one way; ``overlap`` is the share of communication that runs beside
    compute, the rest being work of the thread that computes."""

    jitter: float = 0.0
    slow: Mapping[tuple[int, int], float] = field(default_factory=dict)
    server_s: float = 0.0
    overlap: float = 1.0
    seed: int = 0

    def factors(self) -> Iterator[float]:
        """What the times are multiplied with, one after the other."""
        while not self.jitter:
            yield 1.0
        drawn = np.random.default_rng(self.seed)
        while True:
            yield from drawn.lognormal(-(self.jitter**2) / 2, self.jitter, _AT_ONCE).tolist()
