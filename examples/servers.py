"""Two parameter servers on this machine and a client; run it in the root of the repository."""

import tempfile
from pathlib import Path

import numpy as np

from heterps.ps import Client, TableSpec, start_servers
from heterps.wire.keys import create_key

with tempfile.TemporaryDirectory() as folder:
    run = Path(folder)
    create_key(run)
    with start_servers(run, 2), Client.of_run(run) as client:
        table = client.create_table("user", TableSpec(dim=8, rule="adam", lr=0.01))
        ids = np.arange(1000)
        rows = table.pull(ids)
        table.push(ids, grads=rows)  # each id goes once to the shard that owns it
        print(f"{len(table)} rows on {client.shards} servers after step {table.step}")
        client.save(run / "snapshot")
    print(sorted(path.name for path in run.iterdir()))
