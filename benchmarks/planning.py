"""The planning figures of the README, on one core.

    .venv/bin/python benchmarks/planning.py [--problems 100] [--only exact,rl,…]

Every figure is taken in this one run. `exact` and `auto` alternate problem by problem.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from heterps.errors import InfeasibleError
from heterps.planning.plan import Plan
from heterps.planning.policy.features import features_of
from heterps.planning.policy.network import Policy
from heterps.planning.policy.pool import Pool
from heterps.planning.policy.proposals import first_samples
from heterps.planning.problem import Problem
from heterps.planning.schedulers import make_scheduler
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.testing.problems import random_problem

ROOT = Path(__file__).parent.parent
BUDGET_S = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--only", default="exact,samples,rl,ablation,batch,shell")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(
        f"{platform.processor() or platform.machine()}, one core, Python {sys.version.split()[0]}"
    )
    for name in options.only.split(","):
        SECTIONS[name](options.problems)


def cases() -> Iterator[tuple[str, Problem]]:
    """The feasible case files."""
    for path in sorted((ROOT / "tests" / "cases").glob("*.json")):
        document = json.loads(path.read_text())
        if "cost" in document["expect"]:
            yield path.stem, Problem.parse(document)


def problems(count: int) -> Iterator[tuple[str, Problem]]:
    for seed in range(count):
        yield f"random-{seed}", random_problem(seed)


def timed(plan: Callable[[], Plan]) -> tuple[Plan, float]:
    started = time.perf_counter()
    result = plan()
    return result, time.perf_counter() - started


def deadline(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() > end


def exact_section(count: int) -> None:
    """Proofs: `exact` and `auto` side by side, and what the policy's plan saves the search."""
    for title, group in (("case files", cases()), (f"{count} random problems", problems(count))):
        rows: dict[str, list[tuple[float, float]]] = {"exact": [], "auto": []}
        work: list[tuple[int, int]] = []
        for _, problem in group:
            for method, row in rows.items():
                scheduler = make_scheduler(method)
                fresh = Problem(problem.cluster, problem.profile, problem.workload)
                plan, seconds = timed(
                    lambda s=scheduler, p=fresh: s.plan(p, stop=deadline(BUDGET_S))  # type: ignore[misc]
                )
                assert plan.gap is not None
                row.append((seconds, plan.gap))
            work.append(work_without_and_with_incumbent(problem))
        print(f"\n{title}")
        for method, row in rows.items():
            seconds = [s for s, _ in row]
            proven, worst = sum(gap <= 1e-9 for _, gap in row), max(gap for _, gap in row)
            print(
                f"  {method:6} proven {proven} of {len(row)}, worst gap {worst:.2%},"
                f" seconds: median {statistics.median(seconds):.3f}, mean "
                f"{statistics.mean(seconds):.3f}, worst {max(seconds):.2f}"
            )
        without, with_ = (sum(w[i] for w in work) for i in (0, 1))
        hard = [w for w in work if w[0] > 5_000_000]
        print(
            f"  steps of the search with the policy's plan to beat / without: {with_ / without:.2f}"
            f" in sum, median {statistics.median(b / a for a, b in work):.2f}"
            + (
                f"; {statistics.median(b / a for a, b in hard):.2f} on the {len(hard)} hardest"
                if hard
                else ""
            )
        )


def work_without_and_with_incumbent(problem: Problem) -> tuple[int, int]:
    """Elementary steps until the proof (bounded)."""
    pool = Pool(problem.kernel)
    pool.add(first_samples(Policy.shipped("lstm"), features_of(problem.kernel), 0))
    result = []
    for incumbent in (None, pool.elite(1)):
        search = problem.kernel.search()
        if incumbent is not None:
            search.offer(problem.kernel.native, incumbent)
        search.run(4_000_000_000)
        result.append(search.work)
    return result[0], result[1]


def optimum(problem: Problem) -> float:
    """The proven optimum, or the proven lower bound."""
    bound = ExactScheduler().plan(problem).lower_bound
    assert bound is not None
    return bound


def samples_section(count: int) -> None:
    """The pre-trained policies' first 128 samples, no tuning."""
    print()
    for cell in ("lstm", "rnn"):
        policy = Policy.shipped(cell)
        for title, group in (("case files", cases()), ("random problems", problems(count))):
            ratios = []
            for _, problem in group:
                pool = Pool(problem.kernel)
                pool.add(first_samples(policy, features_of(problem.kernel), 0))
                ratios.append(pool.cost / optimum(problem))
            within = sum(r <= 1.01 for r in ratios)
            print(
                f"first 128 samples of {cell}, {title}: within 1 % on {within} of {len(ratios)}, "
                f"median ratio {statistics.median(ratios):.4f}"
            )


def rl_section(count: int) -> None:
    """`rl-lstm` alone against the proven optimum."""
    compare(["rl-lstm"], "case files", cases())
    compare(["rl-lstm"], f"{count} random problems", problems(count))


def ablation_section(count: int) -> None:
    """What each part of the learned method is worth, beside the baselines."""
    methods = ["rl-lstm", "rl-rnn", "rl-scratch", "greedy", "genetic", "random", "heuristic",
               "single-type"]  # fmt: skip
    compare(methods, f"{count // 5} random problems", problems(count // 5))


def compare(methods: list[str], title: str, group: Iterator[tuple[str, Problem]]) -> None:
    rows: dict[str, list[tuple[float, float, int]]] = {method: [] for method in methods}
    for _, problem in group:
        bound = optimum(problem)
        for method, row in rows.items():
            try:
                plan, seconds = timed(lambda m=method, p=problem: make_scheduler(m).plan(p))  # type: ignore[misc]
                row.append((plan.cost / bound, seconds, plan.evaluations))
            except InfeasibleError:
                raise
            except Exception as error:  # noqa: BLE001 - a baseline may find nothing; it is counted
                print(f"  {method}: {error}")
                row.append((np.inf, 0.0, 0))
    print(
        f"\n{title}: method, within 1 %, median ratio, worst ratio, median s, worst s, evaluations"
    )
    for method, row in rows.items():
        ratio, seconds, evaluations = (list(column) for column in zip(*row, strict=True))
        print(
            f"  {method:12} {sum(r <= 1.01 for r in ratio):3d} of {len(ratio)}  "
            f"{statistics.median(ratio):.4f}  {max(ratio):.4f}  {statistics.median(seconds):.2f}  "
            f"{max(seconds):.2f}  {statistics.median(evaluations):.0f}"
        )


def batch_section(_: int) -> None:
    """Pricing 10,000 assignments of a 16-layer, 2-type problem."""
    problem = dict(cases())["ctrdnn16-cpu-v100-mid"]
    rows = np.random.default_rng(0).integers(0, 2, (10_000, 16)).astype(np.int32)
    problem.kernel.provision(rows[:10])
    seconds = []
    for _repeat in range(5):
        started = time.perf_counter()
        problem.kernel.provision(rows)
        seconds.append(time.perf_counter() - started)
    print(f"\n10,000 assignments of 16 layers x 2 types: {statistics.median(seconds):.4f} s")


def shell_section(_: int) -> None:
    """`heterps plan` from the shell, start-up included."""
    command = [Path(sys.executable).with_name("heterps"), "plan", ROOT / "examples/ctrdnn/job.yaml"]
    seconds = []
    for _repeat in range(6):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    print(f"\nheterps plan from the shell: median {statistics.median(seconds[1:]):.2f} s of 5")


SECTIONS: dict[str, Callable[[int], None]] = {
    "exact": exact_section,
    "samples": samples_section,
    "rl": rl_section,
    "ablation": ablation_section,
    "batch": batch_section,
    "shell": shell_section,
}

if __name__ == "__main__":
    main()
