"""The contract of every scheduler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from heterps.planning.plan import Plan
from heterps.planning.problem import Problem


@dataclass(frozen=True)
class Progress:
    """How far a search is: ``done`` of ``total`` (None where no end is known), the best cost so far
    in dollars and the proven lower bound, where there are such."""

    done: int
    total: int | None
    cost: float | None = None
    lower_bound: float | None = None


Stop = Callable[[], bool]
Report = Callable[[Progress], None]


def never() -> bool:
    return False


def ignore(_: Progress) -> None:
    pass


class Scheduler(ABC):
    """Chooses an assignment; the provisioner chooses the units.

    ``plan`` returns a feasible plan, the best that was found, or raises InfeasibleError. The plan
    depends on the problem and the constructor's options (seed included) alone, unless ``stop``
    answers true: then the best plan so far is returned as soon as there is one. ``report`` is
    called now and then. A scheduler reads no clock, prints nothing and keeps no state between
    calls.
    """

    name: ClassVar[str]

    @abstractmethod
    def plan(self, problem: Problem, *, stop: Stop = never, report: Report = ignore) -> Plan: ...
