"""Plan the example job from Python; run it in the root of the repository."""

import heterps

plan = heterps.plan("examples/ctrdnn/job.yaml")
for stage in plan.stages:
    print(f"layers {stage.first} to {stage.last} on {stage.units} {stage.type}")
print(f"${plan.cost:.4f} at {plan.throughput:,.0f} samples/s, proven optimal: {plan.gap == 0}")
