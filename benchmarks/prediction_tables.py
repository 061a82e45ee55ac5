"""What came of benchmarks/prediction.py, in numbers and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

FORMULA, SIMULATOR = (0.10, 0.25), (0.10, 0.20)  # median and worst
COMPARED = ("compute_s", "comm_s")  # predicted and measured
PARTS = ("batch_s", "forward_s", "backward_s", "prepare_s", "send_s", "commit_s", "loop_s")
PARTS += ("pull_s", "push_s", "link_s")


@dataclass(frozen=True)
class Outcome:
    """Samples per second; ``calm`` is the share of their time that the stages would have worked for
    had nobody else used the machine."""

    model: str
    plan: str
    staleness: int
    measured: float
    runs: tuple[float, ...]
    formula: float
    simulated: float
    bound_by: str
    oversubscribed: bool
    dollars_per_million: float
    calm: float
    stages: list[dict[str, Any]]

    @property
    def simulated_dollars_per_million(self) -> float:
        return self.dollars_per_million * self.measured / self.simulated

    @property
    def formula_error(self) -> float:
        return self.formula / self.measured - 1

    @property
    def simulator_error(self) -> float:
        return self.simulated / self.measured - 1


def counted(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if not each.oversubscribed]


def verdict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    ran = counted(outcomes)
    formula = [abs(each.formula_error) for each in ran if each.staleness == 2]
    simulator = [abs(each.simulator_error) for each in ran]
    return {
        "plans": len(formula),
        "formula": {"median": statistics.median(formula), "worst": max(formula)},
        "simulator": {"median": statistics.median(simulator), "worst": max(simulator)},
        "formula_holds": statistics.median(formula) <= FORMULA[0] and max(formula) <= FORMULA[1],
        "simulator_holds": statistics.median(simulator) <= SIMULATOR[0]
        and max(simulator) <= SIMULATOR[1],
    }


def tell(console: Console, found: Outcome, stages: bool = False) -> None:
    console.print(
        f"{found.model:8} staleness {found.staleness}  measured {found.measured:8,.0f}  "
        f"formula {found.formula_error:+6.1%}  simulator {found.simulator_error:+6.1%}  "
        f"calm {found.calm:4.0%}  {found.plan}",
        highlight=False,
    )
    for stage in found.stages if stages else ():
        said, seen = stage["predicted"], stage["measured"]
        pairs = [f"{key[:-2]} {1e3 * said[key]:.0f} {1e3 * seen[key]:.0f}" for key in COMPARED]
        waits = [f"{cause} {1e3 * s:.0f}" for cause, s in seen["waiting"].items() if s > 0]
        own = [f"{key[:-2]} {1e3 * seen[key]:.1f}" for key in PARTS]
        console.print(f"    {stage['type']}: ms " + ", ".join(pairs + waits + own), highlight=False)


def show(console: Console, outcomes: Sequence[Outcome], found: dict[str, Any]) -> None:
    titles = ("model", "plan", "bound by", "staleness", "measured", "formula", "simulator")
    table = Table(*titles, title="samples/s; errors of predictions")
    for each in outcomes:
        note = " (no evidence)" if each.oversubscribed else ""
        table.add_row(
            each.model,
            each.plan + note,
            each.bound_by,
            str(each.staleness),
            f"{each.measured:,.0f}",
            f"{each.formula_error:+.0%}" if each.staleness else "",
            f"{each.simulator_error:+.0%}",
        )
    console.print(table)
    for name in ("formula", "simulator"):
        errors = found[name]
        console.print(f"{name}: median {errors['median']:.1%}, worst {errors['worst']:.1%}")


def show_choice(console: Console, model: str, found: dict[str, Any]) -> None:
    for name, title in (("among", "of these plans"), ("of_all", "of all plans")):
        own = found.get(name)
        if own is not None:
            figures = f"{own['cost_ratio']:.3f} x the cheapest measured, {own['of_floor']:.2f} x"
            console.print(f"{model}, chosen {title}: {own['plan']}: {figures} the floor")
