"""Takes half of the units of a type away from a run, gives them back, and compares paces.

    .venv/bin/python benchmarks/elastic.py [--seconds 40] [--json FILE]

The type is an emulated one, slow enough that all of its units fit this machine's cores. The job is
profiled and planned, trained as `heterps train`, and told of its units by `heterps scale`; nobody
else does anything. Every phase is measured for so many seconds, from its first seconds on, and
compared with what its plan predicts: by the simulator, which knows the staleness of the job, and by
the formula beside it. The exit code is 1 if the former is off by more than 15 %.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from awake import awake
from commands import end_in_order, output_of
from heterps.data.synthetic import SECTION, SynthSpec, synthesise
from heterps.events import read_events
from heterps.job.load import load_job, read_document
from heterps.planning.plan import read_plan
from heterps.planning.problem import Problem
from heterps.planning.simulate import simulate
from heterps.runtime.scaling import plan_that_runs

TYPE, UNITS, SLOWDOWN = "slow", 4, 10.0
ROWS = 200_000
MARGIN = 0.15
WARM_UP_S = 5.0
PATIENCE_S = 300.0
HETERPS = [sys.executable, "-m", "heterps"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each phase")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    end_in_order()
    with tempfile.TemporaryDirectory(prefix="heterps-elastic-") as name, awake():
        phases = measure(Path(name), options.seconds)
    titles = ("units", "predicted, samples/s", "by the formula", "measured", "of the prediction")
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for phase in phases:
        cells = [f"{phase[name]:,.0f}" for name in ("units", "predicted", "formula", "measured")]
        print("| " + " | ".join([*cells, f"{phase['ratio']:.2f}"]) + " |")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"margin": MARGIN, "phases": phases}, indent=1))
    return 0 if all(abs(phase["ratio"] - 1) <= MARGIN for phase in phases) else 1


def measure(folder: Path, seconds: float) -> list[dict[str, Any]]:
    run, phases = folder / "run", []
    job = write_job(folder)
    problem = Problem.of(load_job(job).with_samples(ROWS))
    with training(job, run):
        for number, units in enumerate((UNITS, UNITS // 2, UNITS)):
            if number:
                output_of([*HETERPS, "scale", str(run), f"{TYPE}={units}"])
            phases.append(measured(run, number, seconds, problem))
    return phases


def write_job(folder: Path) -> Path:
    """A job whose floor takes nearly all that its units can do."""
    synthesise(SynthSpec(ROWS, 20_000, slots=8, ids=10_000, dense=4), folder / "data")
    data = read_document(folder / "data" / SECTION)["data"]
    data = {**data, "train": str(folder / "data" / data["train"])}
    data.pop("validation", None)
    file = folder / "job.json"
    document = {
        "model": {"zoo": "ctrdnn", "args": {"hidden": [128, 128], "norm": False}},
        "data": data,
        "workload": {"batch_size": 4096, "micro_batches": 8, "epochs": 1000},
        "cluster": {"types": [_units(TYPE)]},
        "snapshot": {"every_s": 10},
        "recovery": {"drift": 100},  # no other plan because this one is off
    }
    file.write_text(json.dumps(document))
    profile = folder / "profile.json"
    output_of([*HETERPS, "profile", str(file), "--out", str(profile)])
    document["profile"] = json.loads(profile.read_text())
    document["workload"]["min_throughput"] = 1e12
    file.write_text(json.dumps(document))
    fastest = plan_that_runs(load_job(file).with_samples(ROWS))
    document["workload"]["min_throughput"] = 0.95 * fastest.throughput
    file.write_text(json.dumps(document))
    return file


def _units(name: str) -> dict[str, Any]:
    return {"name": name, "price_per_hour": 0.1, "limit": UNITS, "slowdown": SLOWDOWN}


@contextmanager
def training(job: Path, run: Path) -> Iterator[None]:
    log = job.with_name("run.log")
    with log.open("w") as said:
        command = [*HETERPS, "train", str(job), "--out", str(run), "--json"]
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            yield
        except TimeoutError as error:
            raise RuntimeError(f"{error}: {log.read_text()}") from None
        finally:
            process.kill()  # its processes end with it
            process.wait()


def measured(run: Path, number: int, seconds: float, problem: Problem) -> dict[str, Any]:
    """Of the generation of that number, once it has trained for so long."""
    deadline = time.monotonic() + PATIENCE_S + seconds
    while time.monotonic() < deadline:
        told = _progress(run, number)
        late = [e for e in told if e["time"] >= told[0]["time"] + WARM_UP_S]
        if late and late[-1]["time"] - late[0]["time"] >= seconds:
            pace = (late[-1]["samples"] - late[0]["samples"]) / (late[-1]["time"] - late[0]["time"])
            plan = read_plan(problem, json.loads((run / "plan.json").read_text()))
            predicted = simulate(problem, plan).samples_per_s or math.nan
            found = {"predicted": predicted, "formula": plan.throughput, "measured": pace}
            about = {"units": sum(plan.units), "stages": len(plan.stages)}
            return {**about, **found, "ratio": pace / predicted}
        time.sleep(0.5)
    raise TimeoutError(f"generation {number} did not train for {seconds:g} s")


def _progress(run: Path, number: int) -> list[dict[str, Any]]:
    events = run / "events.jsonl"
    found: list[list[dict[str, Any]]] = [[]]
    for event in read_events(events) if events.exists() else ():
        if event["kind"] == "ready":
            found.append([])
        elif event["kind"] == "progress":
            found[-1].append(event)
    return found[number + 1] if number + 1 < len(found) else []


if __name__ == "__main__":
    sys.exit(main())
