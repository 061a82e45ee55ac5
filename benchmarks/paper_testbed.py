"""The zoo on the paper's testbed, planned by every method; profiles are from published figures.

    .venv/bin/python benchmarks/paper_testbed.py [--json FILE]
    .venv/bin/python benchmarks/paper_testbed.py --write FOLDER

The first prints a table of what each method's plan costs. The second writes the profiles anew,
``<model>.profile.json``; those of the repository are in ``examples/paper``. Nothing is measured
here: a plan's cost and throughput are the cost model's.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from heterps.errors import HeterPSError
from heterps.job.load import load_job, read_document
from heterps.job.resources import Cluster
from heterps.models.context import seeded
from heterps.models.trace import trace
from heterps.models.zoo import ZOO
from heterps.planning.feasibility import max_throughput
from heterps.planning.plan import Plan
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.roofline import roofline_profile
from heterps.planning.schedulers import make_scheduler

FOLDER = Path(__file__).parents[1] / "examples" / "paper"
BATCH_SIZE = 512
TABLE_BYTES = 64 * 10**9  # of each table; rows are no part of a unit's memory
FLOORS = {"500,000 samples/s": None, "80 % of what the testbed can reach": 0.8}
ALONE = {"CPU only": "cpu", "GPU only": "v100"}
METHODS = ("heuristic", "greedy", "genetic", "bayesian", "random", "rl-rnn", "rl-lstm", "auto")
_IDS, _HISTORY, _DENSE = 1_000_000, 20, 13


def sample_batch() -> dict[str, torch.Tensor]:
    """Uniform ids, hence hardly any row twice: the most that has to be pulled."""
    draw = torch.Generator().manual_seed(0)
    batch = {
        "label": (torch.rand(BATCH_SIZE, generator=draw) < 0.25).float(),
        "dense": torch.rand(BATCH_SIZE, _DENSE, generator=draw),
        "history": torch.randint(_IDS, (BATCH_SIZE * _HISTORY,), generator=draw),
        "history.offsets": torch.arange(BATCH_SIZE + 1) * _HISTORY,
    }
    for slot in ("user", "item", *(f"C{number}" for number in range(1, 27))):
        batch[slot] = torch.randint(_IDS, (BATCH_SIZE,), generator=draw)
    return batch


def profile(model: str, cluster: Cluster) -> dict[str, Any]:
    with seeded(0):
        chain = ZOO[model]()
    traced = trace(chain, sample_batch(), dict.fromkeys(chain.tables, TABLE_BYTES))
    return roofline_profile(traced.layers, cluster, BATCH_SIZE, model).as_document()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="profiles, and no table")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.write:
        write_profiles(options.write)
        return
    found = {}
    for title, share in FLOORS.items():
        found[title] = {model: compared(model, share) for model in ZOO}
        print(f"\nfloor: {title}\n")
        show(found[title])
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def write_profiles(folder: Path) -> None:
    cluster = Cluster.parse(read_document(FOLDER / "cluster.yaml"), "cluster")
    for model in ZOO:
        text = json.dumps(profile(model, cluster), indent=1)
        (folder / f"{model}.profile.json").write_text(f"{text}\n")


def compared(model: str, share: float | None) -> dict[str, Any]:
    """The optimum of a model, and what every method makes of it; the floor is that ``share`` of the
    most that the testbed can reach."""
    problem = Problem.of(load_job(FOLDER / f"{model}.yaml"))
    if share is not None:
        problem = problem.with_min_throughput(share * (max_throughput(problem) or 0.0))
    optimum = make_scheduler("exact").plan(problem)
    assert optimum.gap == 0, f"{model}: no proof"
    found = {name: planned(problem, name) for name in (*ALONE, *METHODS)}
    return {"floor": problem.workload.min_throughput, "optimum": figures(optimum), **found}


def planned(problem: Problem, name: str) -> dict[str, Any]:
    try:
        if name in ALONE:
            return figures(provision(problem, [ALONE[name]] * problem.layers))
        return figures(make_scheduler(name).plan(problem))
    except HeterPSError as error:
        return {"problem": str(error)}


def figures(plan: Plan) -> dict[str, Any]:
    stages = " | ".join(f"{s.units} {s.type} ({s.last - s.first + 1})" for s in plan.stages)
    return {"dollars": plan.cost, "samples_per_s": plan.throughput, "stages": stages}


def show(found: dict[str, dict[str, Any]]) -> None:
    """In Markdown: the optimum of each model, and the others as multiples of its cost."""
    print("| | " + " | ".join(found) + " |\n|---" + "|---" * len(found) + "|")
    for row in ("optimum", *ALONE, *METHODS):
        print(f"| {row} | " + " | ".join(cell(each, row) for each in found.values()) + " |")


def cell(entry: dict[str, Any], row: str) -> str:
    own = entry[row]
    if "problem" in own:
        return "none reaches the floor"
    dollars, speed = own["dollars"], f"{own['samples_per_s'] / 1e3:,.0f}k/s"
    if row == "optimum":
        return f"${dollars:.4g}, {speed}: {own['stages']}"
    return f"{dollars / entry['optimum']['dollars']:.3f}, {speed}"


if __name__ == "__main__":
    main()
