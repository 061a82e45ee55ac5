"""Tune the learned policy on a problem, save it, and go on from there."""

from pathlib import Path

import heterps
from heterps.planning.policy.network import Policy

problem = heterps.load_problem("examples/ctrdnn/job.yaml")
plan, policy = heterps.make_scheduler("rl-lstm", steps=10).tune(problem)
Path("build").mkdir(exist_ok=True)
policy.save(Path("build/tuned.npz"))

again = heterps.make_scheduler("rl-lstm", steps=10, policy=Policy.load(Path("build/tuned.npz")))
print(f"${plan.cost:.4f}, then ${again.plan(problem).cost:.4f}")
