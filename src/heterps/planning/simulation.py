"""What a simulation found, and what it says about the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_SATURATED = 0.93  # a unit that is busy for this share of the time sets the pace
_WAITS = {
    "input": "input from the stage before, or the data",
    "rows": "rows of the parameter servers",
    "credit": "gradients of what it has sent on",
    "staleness": "the commit of an earlier batch",
    "gradients": "the last gradients",
    "commit": "the other replicas and the commit itself",
}


@dataclass(frozen=True)
class SimulatedStage:
    """Shares of the time of a replica, over the steady part of the run; ``busiest`` is the largest
    share of a single replica or link, ``waiting`` what the computing thread waits for."""

    type: str
    units: int
    compute_busy: float
    link_busy: float
    busiest: float
    waiting: Mapping[str, float]

    @property
    def bound_by(self) -> str:
        return "compute" if self.compute_busy >= self.link_busy else "communication"


@dataclass(frozen=True)
class Simulation:
    """``samples_per_s`` is in the steady state, ``run_samples_per_s`` over all simulated batches
    with fill and drain; both are None where nothing takes time. ``predicted`` is the cost model's.
    """

    samples_per_s: float | None
    run_samples_per_s: float | None
    predicted: float | None
    seconds: float
    batches: int
    micro_batches: int
    staleness: int
    lanes: int
    stages: tuple[SimulatedStage, ...]
    servers_busy: float

    @property
    def of_predicted(self) -> float | None:
        """The steady state as a share of the cost model's throughput."""
        if self.samples_per_s is None or self.predicted is None:
            return None
        return self.samples_per_s / self.predicted

    @property
    def busiest(self) -> int:
        """The stage of the busiest unit."""
        return max(range(len(self.stages)), key=lambda at: self.stages[at].busiest)

    @property
    def bound(self) -> str:
        """What sets the pace, in words."""
        if self.samples_per_s is None:
            return "nothing takes any time"
        stage = self.stages[self.busiest]
        if self.servers_busy > max(stage.busiest, _SATURATED):
            return f"the parameter servers set the pace: busy {_percent(self.servers_busy)}"
        named = f"stage {self.busiest} on {stage.type}"
        busy = f"its busiest unit works {_percent(stage.busiest)} of the time"
        if stage.busiest >= _SATURATED:
            return f"{named} sets the pace, bound by {stage.bound_by}: {busy}"
        cause, share = max(stage.waiting.items(), key=lambda entry: entry[1])
        waits = f"and waits {_percent(share)} of it for {_WAITS[cause]}"
        return f"no unit is busy all the time; {named} is the busiest: {busy} {waits}"

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self), "of_predicted": self.of_predicted, "bound": self.bound}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
