"""A table of embeddings in this process; run it in the root of the repository."""

import tempfile
from pathlib import Path

import numpy as np

from heterps.ps import Adagrad, Normal, SparseTable

table = SparseTable(dim=8, rule=Adagrad(lr=0.1), initial=Normal(0.01), seed=1)

ids = np.array([7, -3, 7, 10**15])  # any 64-bit numbers; repeats are fine
rows = table.pull(ids)  # [4, 8]; rows that nobody has pushed have their initial values
table.push(ids, grads=np.ones_like(rows))  # the gradients of id 7 are summed, then applied once
print(f"{len(table)} rows after step {table.step}")

# The same in batches of several parts, from any thread and in any order.
table.announce(batch=0, parts=2)
for micro_batch in (1, 0):
    table.accumulate(0, (micro_batch, 0), ids, np.ones_like(rows))
rows = table.pull(ids, batch=1)  # waits until batch 0 has committed
print(f"batch {table.committed} has committed, step {table.step}")

with tempfile.TemporaryDirectory() as folder:
    full, delta = Path(folder) / "full", Path(folder) / "delta"
    table.save(full)
    table.push(ids[:1], grads=np.ones((1, 8), np.float32))
    table.save(delta, delta_of=full)  # only the row of id 7

    shards = [SparseTable(8, Adagrad(), initial=Normal(0.01), seed=1) for _ in range(3)]
    for shard, part in enumerate(shards):
        part.load(delta, shard, shards=3)  # any number of shards
    print(f"{sum(map(len, shards))} rows in {len(shards)} shards at step {shards[0].step}")
