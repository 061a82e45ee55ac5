"""Watches the limits of a run, and has a new plan ready when they change, or when the profile
turns out to be wrong.

```text
RUN/limits.json    {"cpu": 8}: what `heterps scale` has said
```
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from heterps.errors import HeterPSError, InputError, UnknownNameError
from heterps.job.spec import Job
from heterps.runtime.prepare import Setup, replanned
from heterps.runtime.scaling import (
    Estimate,
    are_lost,
    fitted,
    plan_that_runs,
    used_units,
    with_limits,
)
from heterps.runtime.specs import units_of

LIMITS = "limits.json"
Reason = Literal["limits", "drift"]
# What the engine has, if it knows, with room for processes (their types by name) before others.
There = Callable[[Mapping[str, str]], Mapping[str, int]]
Refit = Callable[[Path], dict[str, Any]]  # a profile that fits what a run folder has seen
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Proposal:
    """The run under another plan: limits have changed, or the profile was refitted. ``urgent``:
    units of the present plan are gone. ``instead_of``: samples per second of the present plan by
    the same figures, None without any."""

    setup: Setup
    limits: Mapping[str, int]
    urgent: bool
    instead_of: float | None
    reason: Reason = "limits"


class ReplanError(Exception):
    """The run goes on under another plan; a snapshot was taken."""

    def __init__(self, proposal: Proposal, estimate: Estimate | None) -> None:
        super().__init__("another plan")
        self.proposal = proposal
        self.estimate = estimate


class Elastic:
    """Of one run, from generation to generation. ``said`` gets lines that a person should see."""

    def __init__(
        self,
        folder: Path,
        setup: Setup,
        said: Callable[[str], None],
        refit: Refit | None = None,
    ) -> None:
        self._path = folder / LIMITS
        self._refit = refit
        self._first = setup  # whose plan comes back, where none can be made, when its units do
        self._setup = setup
        self._said = said
        self._next_look = 0.0
        self._known = {entry.name: entry.limit for entry in setup.job.cluster.types}
        self.most = dict(self._known)  # what the job allows
        self.there: There = lambda units: {}
        self._thread: threading.Thread | None = None
        self.proposal: Proposal | None = None
        self.error: HeterPSError | None = None  # there is no plan for what is left

    @property
    def units_are_lost(self) -> bool:
        """Those that the present plan uses, whether there is another plan or not."""
        return self.error is not None or (self.proposal is not None and self.proposal.urgent)

    def look(self) -> None:
        """Now and then; a new plan is made in a thread of its own."""
        now = time.monotonic()
        if now < self._next_look or (self._thread is not None and self._thread.is_alive()):
            return
        self._next_look = now + _LOOK_EVERY_S
        limits = self.limits()
        if limits != self._known:
            self._known = limits
            self.begin(limits)

    def limits(self) -> dict[str, int]:
        """What is allowed, as far as it is there."""
        there = self._room_beside(self._setup)
        return {name: min(limit, there.get(name, limit)) for name, limit in self.allowed().items()}

    def allowed(self) -> dict[str, int]:
        """By the job, or by what was said since."""
        return {**self.most, **read_limits(self._path.parent)}

    def settle(self) -> None:
        """Until no plan is being made any more."""
        if self._thread is not None:
            self._thread.join()

    def begin(self, limits: Mapping[str, int]) -> None:
        self.proposal = self.error = None
        self._start(partial(self.plan, limits))

    def plan_at_once(self, limits: Mapping[str, int]) -> None:
        """Changes count from these limits on: units that come back are seen as new ones, however
        soon they do. Limits that no plan was found for are not planned for again."""
        if self.error is None or limits != self._known:
            self._known = dict(limits)
            self.proposal = self.error = None
            self.plan(limits)

    def drifted(self) -> None:
        """The run is far from its prediction: refits the profile, and plans with that. Not while
        another plan is being made, or waits to be taken."""
        waits = self.proposal is not None or (self._thread is not None and self._thread.is_alive())
        if self._refit is not None and self._setup.job.profile is not None and not waits:
            self._start(partial(self.plan_by_what_was_seen, self._refit))

    def plan_by_what_was_seen(self, refit: Refit) -> None:
        """From now on this run is planned with the refitted profile."""
        setup = self._setup
        try:
            job = setup.job.model_copy(update={"profile": refit(self._path.parent)})
            self._setup = replanned(setup, job, setup.plan_document())
            self.proposal = self._proposal(self._known, False, "drift")
        except HeterPSError as error:
            self._said(f"the plan stays, since none could be made from what was seen: {error}")
            return
        if self.proposal is None:
            self._said("the plan stays: by what was seen so far it is still the best")

    def _start(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="plan", daemon=True)
        self._thread.start()

    def plan(self, limits: Mapping[str, int]) -> None:
        """Makes the proposal, unless the plan would stay as it is."""
        setup = self._setup
        urgent = are_lost(used_units(setup.job, setup.layout.stages), limits)
        try:
            self.proposal = self._proposal(limits, urgent)
        except HeterPSError as error:
            self.error = error if urgent else None
            self._said(f"there is no plan for {shown(limits)}: {error}")

    def _proposal(
        self, limits: Mapping[str, int], urgent: bool, reason: Reason = "limits"
    ) -> Proposal | None:
        setup, lanes = self._setup, self._setup.layout.train.lanes
        job = with_limits(setup.job, {name: min(limit, lanes) for name, limit in limits.items()})
        found = self._that_finds_room(job)
        if not urgent and _stages(found.plan_document()) == _stages(setup.plan_document()):
            return None
        now = setup.plan.throughput if setup.plan is not None else None
        return Proposal(found, limits, urgent, now, reason)

    def _that_finds_room(self, job: Job) -> Setup:
        """The best plan within the limits whose units are there together: of types that take the
        same resource there may be as many as each has, and not as many of all."""
        while True:
            if job.profile is None:
                document = fitted(job, self._first.layout.stages)
            else:
                document = plan_that_runs(job).as_document()
            job = job.model_copy(update={"plan": dict(document)})
            found = replanned(self._setup, job, document)
            room = self._room_beside(found)
            limits = {entry.name: entry.limit for entry in job.cluster.types}
            less = {name: min(limit, room.get(name, limit)) for name, limit in limits.items()}
            if less == limits or not are_lost(used_units(job, found.layout.stages), room):
                return found
            job = with_limits(job, less)

    def _room_beside(self, setup: Setup) -> Mapping[str, int]:
        return self.there(units_of(setup.job, setup.layout))

    def estimate(self, samples_left: float, restart_s: float) -> Estimate | None:
        """Of the proposal; None without a prediction of both plans."""
        if self.proposal is None:
            return None
        setup, other, now = self._setup, self.proposal.setup, self.proposal.instead_of
        then = other.plan.throughput if other.plan is not None else None
        if not now or not then:
            return None
        return Estimate(
            samples_left,
            now,
            setup.dollars_per_hour,
            then,
            other.dollars_per_hour,
            restart_s,
            setup.job.workload.min_throughput,
        )

    def taken(self, setup: Setup) -> None:
        """The run goes on so."""
        self._setup, self.proposal, self.error = setup, None, None


def figures(estimate: Estimate | None) -> dict[str, Any]:
    """For an event."""
    if estimate is None:
        return {}
    saved = {"saved_s": estimate.saved_s, "saved_dollars": estimate.saved_dollars}
    return {"estimate": {**asdict(estimate), **saved, "pays": estimate.pays}}


def read_limits(folder: Path) -> dict[str, int]:
    """What was said last; nothing where the file is missing or torn."""
    try:
        found = json.loads((folder / LIMITS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(found, dict) and all(isinstance(limit, int) for limit in found.values())
    return found if whole else {}


def write_limits(folder: Path, job: Job, changes: Mapping[str, int]) -> dict[str, int]:
    """Adds to what was said; all of it. Raises InputError."""
    for name, limit in changes.items():
        if name not in job.cluster.names:
            raise UnknownNameError("scale", "resource type", name, job.cluster.names)
        if limit < 0:
            raise InputError(f"scale {name}", f"expected 0 or more units, got {limit}")
    limits = {**read_limits(folder), **changes}
    partial = folder / f".{LIMITS}.partial"
    partial.write_text(json.dumps(limits) + "\n", encoding="utf-8")
    partial.replace(folder / LIMITS)
    return limits


def told(estimate: Estimate | None) -> str:
    return estimate.text if estimate is not None else "nothing is predicted without a profile"


def shown(limits: Mapping[str, int]) -> str:
    return " ".join(f"{name}={limit}" for name, limit in limits.items())


def _stages(document: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [(s["first"], s["last"], s["type"], s["units"]) for s in document["stages"]]
