"""Plan and train the example job from Python, and use the model; run it in the root of the
repository, after `make train` has made the data."""

import heterps

plan = heterps.plan("examples/clicks/job.yaml")
print(f"${plan.cost:.5f} at {plan.throughput:,.0f} samples/s, proven optimal: {plan.gap == 0}")
result = heterps.train("examples/clicks/job.yaml", plan)
print(f"AUC {result.metrics['auc']:.4f} at {result.samples_per_s:,.0f} samples/s")
predictor = heterps.load_run(result.folder).predictor()  # an ordinary torch module
