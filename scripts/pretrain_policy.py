"""Pre-train the shipped scheduling policies (`rl-lstm`, `rl-rnn`).

    .venv/bin/python scripts/pretrain_policy.py --cell lstm

Three phases over thousands of random models and clusters, each rewarded by the cost model:
random plans (advantage-weighted), imitation of proven optima, then REINFORCE on the policy's own
plans with a baseline per problem. Data and the network after each phase are kept under
``build/policy``; a run that was cut short goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from heterps.errors import HeterPSError
from heterps.planning.kernel import Kernel
from heterps.planning.policy.features import Features, features_of
from heterps.planning.policy.network import Policy, sample
from heterps.planning.policy.training import (
    FeatureBatch,
    PolicyNetwork,
    as_preferences,
    log_probability,
)
from heterps.planning.problem import Problem
from heterps.planning.reward import scores
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.planning.schedulers.incumbent import choices
from heterps.planning.schedulers.random import random_assignments
from heterps.testing.problems import random_problem

BATCH = 8  # problems; larger ones cost more time than they save steps
FIRST_SEED = 1_000_000  # the benchmarks use small seeds
WORK = Path("build/policy")


@dataclass(frozen=True)
class Example:
    problem: Problem
    features: Features
    optimum: NDArray[np.int64]
    cost: float

    def scores(self, plans: NDArray[np.int32]) -> NDArray[np.float64]:
        return scores(Kernel(self.problem).provision(plans), self.cost)


def make_example(seed: int) -> Example | None:
    rng = np.random.default_rng([3, seed])
    size = (24, 64) if rng.random() < 0.6 else (3, 24)
    try:
        problem = random_problem(
            seed, layers=size, limited=bool(rng.random() < 0.65), floor=(0.02, 0.8)
        )
        plan = ExactScheduler(max_work=100_000_000).plan(problem)
    except HeterPSError:
        return None
    if plan.gap is None or plan.gap > 1e-3 or plan.cost <= 0:
        return None
    optimum = np.array(problem.type_indices(plan.assignment), np.int64)
    features = features_of(problem.kernel)
    problem.__dict__.pop("kernel")
    return Example(problem, features, optimum, plan.cost)


def load_examples(count: int) -> list[Example]:
    """Made in parts of a thousand seeds, each kept."""
    WORK.mkdir(parents=True, exist_ok=True)
    found: list[Example] = []
    for first in range(FIRST_SEED, FIRST_SEED + count, 1000):
        path = WORK / f"examples-{first}.pickle"
        if not path.exists():
            started = time.monotonic()
            with multiprocessing.Pool() as pool:
                made = pool.map(make_example, range(first, first + 1000), chunksize=8)
            path.write_bytes(pickle.dumps([example for example in made if example is not None]))
            print(f"{path}: {time.monotonic() - started:.0f} s", flush=True)
        found += pickle.loads(path.read_bytes())
    return found


def batches(
    examples: list[Example], size: int, rng: np.random.Generator
) -> Iterator[list[Example]]:
    """Endless, each of problems of similar length so that little is padded."""
    while True:
        order = rng.permutation(len(examples))
        for chunk in np.array_split(order, max(1, len(order) // (size * 16))):
            chunk = sorted(chunk, key=lambda i: examples[i].features.pair.shape[0])
            groups = [chunk[i : i + size] for i in range(0, len(chunk), size)]
            for group in rng.permutation(np.arange(len(groups))):
                yield [examples[i] for i in groups[group]]


def padded(plans: list[NDArray[np.int64]]) -> torch.Tensor:
    """Rows of plans per problem, padded with zeros: [problems, plans, layers]."""
    longest = max(p.shape[1] for p in plans)
    result = torch.zeros(len(plans), plans[0].shape[0], longest, dtype=torch.int64)
    for index, rows in enumerate(plans):
        result[index, :, : rows.shape[1]] = torch.from_numpy(rows)
    return result


def weighted_loss(
    network: PolicyNetwork, examples: list[Example], plans: list[NDArray[np.int32]]
) -> torch.Tensor:
    """REINFORCE with the mean of each problem's plans as baseline, in units of their spread."""
    batch = FeatureBatch.of([e.features for e in examples])
    prefer, stay = network(batch)
    logp = log_probability(prefer, stay, padded([p.astype(np.int64) for p in plans]), batch.layers)
    score = np.stack([e.scores(p) for e, p in zip(examples, plans, strict=True)])
    advantage = score.mean(1, keepdims=True) - score
    advantage /= score.std(1, keepdims=True) + 1e-3
    weight = torch.from_numpy(advantage.astype(np.float32))
    return -(weight * logp / batch.layers[:, None]).mean()


def random_phase(
    network: PolicyNetwork, examples: list[Example], rng: np.random.Generator
) -> torch.Tensor:
    plans = [random_assignments(choices(e.problem), 32, rng) for e in examples]
    return weighted_loss(network, examples, plans)


def imitation_phase(
    network: PolicyNetwork, examples: list[Example], rng: np.random.Generator
) -> torch.Tensor:
    batch = FeatureBatch.of([e.features for e in examples])
    prefer, stay = network(batch)
    plans = padded([e.optimum[None] for e in examples])
    logp = log_probability(prefer, stay, plans, batch.layers)
    return -(logp[:, 0] / batch.layers).mean()


def own_phase(
    network: PolicyNetwork, examples: list[Example], rng: np.random.Generator
) -> torch.Tensor:
    batch = FeatureBatch.of([e.features for e in examples])
    with torch.no_grad():
        prefer, stay = network(batch)
    plans = [sample(as_preferences(prefer, stay, i, batch), 24, rng) for i in range(len(examples))]
    return weighted_loss(network, examples, plans) + 0.2 * imitation_phase(network, examples, rng)


def evaluate(network: PolicyNetwork, examples: list[Example]) -> str:
    policy = network.policy()
    rng = np.random.default_rng(5)
    best, mean = [], []
    for example in examples:
        plans = sample(policy.preferences(example.features), 128, rng)
        score = example.scores(plans)
        best.append(score.min())
        mean.append(score.mean())
    within = np.mean(np.array(best) < np.log(1.01))
    return f"best of 128 within 1 %: {within:.0%}, mean score {np.mean(mean):.3f}"


PHASES = {"random": random_phase, "imitation": imitation_phase, "own": own_phase}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", choices=["lstm", "rnn"], default="lstm")
    parser.add_argument("--examples", type=int, default=10000)
    parser.add_argument("--steps", default="random=100,imitation=5000,own=600")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    examples = load_examples(options.examples)
    held_out, examples = examples[:100], examples[100:]
    print(f"{len(examples)} problems", flush=True)
    policy = Policy.untrained(options.cell, 0)
    for text in options.steps.split(","):
        phase, steps = text.split("=")
        kept = WORK / f"{options.cell}-{phase}-{steps}.npz"
        if kept.exists():
            policy = Policy.load(kept)
            continue
        policy = train(policy, phase, int(steps), examples, held_out)
        policy.save(kept)
    target = options.out or Path("src/heterps/planning/policy") / f"{options.cell}.npz"
    policy.save(target)
    print(f"wrote {target} ({target.stat().st_size} bytes)")


def train(
    policy: Policy, phase: str, steps: int, examples: list[Example], held_out: list[Example]
) -> Policy:
    network = PolicyNetwork(policy)
    rng = np.random.default_rng(1)
    rate = 2e-3 if phase == "imitation" else 5e-4
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=steps + 1, pct_start=0.1
    )
    started, recent = time.monotonic(), []
    for step, chosen in enumerate(itertools.islice(batches(examples, BATCH, rng), steps)):
        optimizer.zero_grad()
        loss = PHASES[phase](network, chosen, rng)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent = [*recent[-99:], float(loss.detach())]
        if step % 500 == 499 or step == steps - 1:
            print(
                f"{phase} {step + 1}/{steps}: loss {np.mean(recent):.4f}, "
                f"{evaluate(network, held_out)}, {time.monotonic() - started:.0f} s",
                flush=True,
            )
            network.policy().save(WORK / f"{network.cell}-latest.npz")
    return network.policy()


if __name__ == "__main__":
    main()
