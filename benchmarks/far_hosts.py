"""Predictions for hosts that are far from each other, against runs there.

    .venv/bin/python benchmarks/far_hosts.py [--delay-ms 20] [--mbps 1000] [--small] [--json FILE]

Three made-up hosts of this machine (namespaces) with a Ray node on each, and so many milliseconds
between any two of them, one way: parameter servers and coordinator on the first, and on each of the
others the units of one emulated type. The model is the click model that train.py trains, in batches
of 8 × 512, or with ``--small`` that of prediction.py in 12 × 256. ``heterps profile`` measures
there, and every plan is run there at staleness 2 and 0, in rounds as in prediction.py. A round
takes about seven minutes with ``--seconds 8``, and all needs the right to make namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from awake import awake
from commands import end_in_order
from heterps.job.spec import Job
from heterps.planning.simulate import simulate
from heterps.runtime.engines import engines_of
from heterps.runtime.measuring import Measurer
from heterps.runtime.profiling import measure_profile
from heterps.testing.machines import RayMachines, Wires
from prediction import Ran, compared, name_of, with_profile
from prediction_plans import Stages, as_plan, document
from prediction_tables import tell
from ps import machine

TYPES = [
    {"name": "one", "price_per_hour": 0.02, "limit": 4, "slowdown": 10.0},
    {"name": "two", "price_per_hour": 0.03, "limit": 4, "slowdown": 8.0},
]
RESOURCES = [{"CPU": 2}, {"CPU": 0, "one": 4}, {"CPU": 0, "two": 4}]
MODEL = "ctrdnn"
HIDDEN = [400, 400, 400]
MICRO_BATCH, MICRO_BATCHES = 512, 8
PLANS: Sequence[Stages] = [
    [(0, "one", 4)],
    [(0, "one", 2), (5, "two", 1)],
    [(0, "two", 1), (2, "one", 4)],
    [(0, "one", 2), (2, "two", 2), (8, "one", 1)],
]


@dataclass
class Found:
    """Of each round: samples per second of the run, and of its profile by formula and simulator."""

    plan: str
    staleness: int
    runs: list[float] = field(default_factory=list)
    formula: list[float] = field(default_factory=list)
    simulated: list[float] = field(default_factory=list)

    def off(self, said: Sequence[float]) -> list[float]:
        """Of predictions in each round, relative to what was measured there."""
        return [each / measured - 1 for each, measured in zip(said, self.runs, strict=True)]


def job_document(small: bool) -> dict[str, Any]:
    types = [{**t, "ray": {"num_cpus": 0, "resources": {str(t["name"]): 1}}} for t in TYPES]
    whole = document(MODEL)
    own = {"cluster": {"types": types}, "servers": {"count": 1}, "engine": "ray"}
    if small:
        return {**whole, **own}
    batch = {"batch_size": MICRO_BATCH * MICRO_BATCHES, "micro_batches": MICRO_BATCHES}
    model = {"zoo": MODEL, "args": {"hidden": HIDDEN}}
    return {**whole, **own, "model": model, "workload": {**whole["workload"], **batch}}


def inside(options: argparse.Namespace) -> None:
    """On the first host."""
    job = Job.parse(json.loads(options.inside.read_text()))
    outcomes: dict[tuple[int, int], Found] = {}
    with engines_of(job) as make_engine:
        for number in range(options.rounds):
            about = measure_profile(job, make_engine=make_engine, seconds=options.seconds)
            problem = with_profile(job, about)
            print(f"round {number + 1}: profile", flush=True)
            for (at, stages), staleness in product(enumerate(PLANS), (2, 0)):
                if options.plans and at not in options.plans:
                    continue
                plan = as_plan(problem, stages)
                entry = outcomes.setdefault((at, staleness), Found(name_of(plan), staleness))
                workload = job.workload.model_copy(update={"staleness": staleness})
                own = job.model_copy(update={"workload": workload})
                found = Measurer(own, options.seconds, make_engine).run(plan)
                assert found is not None
                entry.runs.append(found.samples_per_s)
                entry.formula.append(plan.throughput or 0.0)
                said = simulate(problem, plan, staleness=staleness).samples_per_s or 0.0
                entry.simulated.append(said)
                ran = Ran(plan, staleness, found, plan.throughput or 0.0, said)
                tell(Console(width=200), compared(MODEL, problem, [ran]), stages=True)
    types = {name: about.as_document() for name, about in problem.profile.types.items()}
    found_all = [asdict(each) for each in outcomes.values()]
    options.out.write_text(json.dumps({"found": found_all, "types": types}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--mbps", type=float, default=1000.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each run")
    parser.add_argument("--small", action="store_true", help="the model of prediction.py")
    parser.add_argument("--json", type=Path)
    plans = parser.add_argument("--plans", help="numbers with commas: these alone")
    plans.type = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(options)
        return
    end_in_order()
    with awake():
        result = {**measured(options), "machine": machine()}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    show([Found(**each) for each in result["found"]], result["types"])


def measured(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hm-") as folder:
        disk = Path(folder)
        wires = Wires(options.delay_ms, options.mbps)
        with RayMachines(disk, RESOURCES, wires) as machines:
            machines.start_ray()
            text = json.dumps(
                {**job_document(options.small), "ray": {"folder": str(disk / "node")}}
            )
            data = Path(json.loads(text)["data"]["train"]).parent
            for each in machines.all:
                each.copy(data, "data")
            job = machines[0].ours("job.json")
            job.write_text(text.replace(str(data), str(disk / "data")))
            command = [sys.executable, __file__, "--inside", str(disk / "job.json")]
            command += ["--out", str(disk / "found.json"), "--rounds", str(options.rounds)]
            command += ["--seconds", str(options.seconds)]
            chosen = ",".join(str(number) for number in options.plans or ())
            command += ["--plans", chosen] if chosen else []
            environment = {**machines.environment, "HOME": str(disk), "TMPDIR": str(disk)}
            process = machines[0].start(*command, environment={**os.environ, **environment})
            if process.wait():
                raise SystemExit(process.returncode)
            found: dict[str, Any] = json.loads(machines[0].ours("found.json").read_text())
            return found


def show(found: Sequence[Found], types: dict[str, Any]) -> None:
    console = Console(width=120)
    for name, about in types.items():
        link = f"{about['link_ms']:.1f} ms one way, {about['link_mbps']:,.0f} Mbit/s"
        console.print(f"{name}: {link} measured", highlight=False)
    table = Table("plan", "staleness", "measured", "formula", "simulator", "in its rounds")
    for each in found:
        off = each.off(each.simulated)
        reached = f"{statistics.median(each.runs):,.0f}"
        medians = (statistics.median(errors) for errors in (each.off(each.formula), off))
        shown = [f"{error:+.0%}" for error in medians]
        rounds = ", ".join(f"{error:+.0%}" for error in off)
        table.add_row(each.plan, str(each.staleness), reached, *shown, rounds)
    console.print(table)
    plans = [statistics.median(each.off(each.simulated)) for each in found]
    for of, errors in {
        "medians of a plan": plans,
        "single rounds": [error for each in found for error in each.off(each.simulated)],
    }.items():
        sizes = [abs(error) for error in errors]
        worst = f"{statistics.median(sizes):.0%} in the median, {max(sizes):.0%} at worst"
        console.print(f"simulator, {of}: {worst}", highlight=False)


if __name__ == "__main__":
    main()
