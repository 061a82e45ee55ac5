"""What snapshots cost a run: how long training stands still, and processor time beside it.

    .venv/bin/python benchmarks/snapshots.py [--rows 10000000] [--every 30] [--snapshots 4]
                                             [--data DIR] [--json FILE]

Trains the benchmark model (26 slots x 16, three layers of 400) at full speed from a table of so
many rows, with a snapshot every so many seconds: the first holds all rows, the others those that
were trained since. The processor time is that of the servers and the coordinator for the snapshot.
A cycle is a whole one and the deltas that may follow it; its mean is what counts in the long run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from commands import end_in_order, output_of
from heterps.data.click_model import BLOCK_ROWS, ClickModel
from heterps.data.writing import parquet_writer
from heterps.events import read_events
from heterps.runtime.snapshot import DELTA_ROWS, MOST_DELTAS
from heterps_run import job_document, shape_of
from workload import SLOTS, training_data

BATCH, SAMPLES = 4096, 1_048_576
PATIENCE_S = 900.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--every", type=float, default=30.0, help="seconds")
    parser.add_argument("--snapshots", type=int, default=4)
    parser.add_argument("--data", type=Path, default=Path("build/bench/data"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    end_in_order()
    _, data = training_data(options.data, SAMPLES)
    with tempfile.TemporaryDirectory(prefix="heterps-snapshots-") as name:
        folder = Path(name)
        filled = fill(folder, options.rows)
        events = train(folder, data, filled, options.every, options.snapshots)
    found = summary(events, options.every)
    print_table(found)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1))
    return 0


def fill(folder: Path, rows: int) -> Path:
    """A run that has seen so many ids, each once."""
    data, run = folder / "fill.parquet", folder / "filled"
    samples = -(-rows // SLOTS)
    model = ClickModel(slots=SLOTS, ids=samples)
    with parquet_writer(data, model.block(0).table.schema) as writer:
        for first in range(0, samples, BLOCK_ROWS):
            table = _distinct(model.block(0).table, first).slice(0, samples - first)
            writer.write_table(table, row_group_size=BLOCK_ROWS)
    job = job_document(BATCH, 0, shape_of(1, 0, BATCH), data)
    job["workload"]["epochs"] = 1
    job["snapshot"] = {"every_s": 0}
    output_of(_command(folder / "fill.json", job, run))
    return run


def _distinct(table: pa.Table, first: int) -> pa.Table:
    """The same with ids that are used once, counted from ``first``."""
    ids = pa.array(np.arange(first, first + len(table)))
    for index, name in enumerate(table.column_names):
        if name.startswith("C"):
            table = table.set_column(index, name, ids)
    return table


def train(
    folder: Path, data: Path, filled: Path, every_s: float, snapshots: int
) -> list[dict[str, Any]]:
    """The events of a run that was ended after so many snapshots."""
    job, run = job_document(BATCH, 0, shape_of(1, 0, BATCH), data), folder / "run"
    job["workload"]["epochs"] = 1000
    job |= {"warm_start": str(filled), "snapshot": {"every_s": every_s, "keep": 2}}
    log = folder / "run.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            _command(folder / "job.json", job, run), stdout=said, stderr=said
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while _count(run) < snapshots:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(log.read_text())
                time.sleep(0.5)
        finally:
            process.kill()  # its processes end with it
            process.wait()
    return list(read_events(run / "events.jsonl"))


def _command(file: Path, job: dict[str, Any], run: Path) -> list[str]:
    file.write_text(json.dumps(job))
    return [sys.executable, "-m", "heterps", "train", str(file), "--out", str(run), "--json"]


def _count(run: Path) -> int:
    events = run / "events.jsonl"
    if not events.exists():
        return 0
    return sum(event["kind"] == "snapshot" for event in read_events(events))


def summary(events: Sequence[dict[str, Any]], every_s: float) -> dict[str, Any]:
    taken = [event for event in events if event["kind"] == "snapshot"]
    keys = ("rows", "stall_s", "cpu_s", "seconds", "delta_of")
    whole = [event for event in taken if event["delta_of"] is None]
    deltas = [event for event in taken if event["delta_of"] is not None]
    cost = {"whole": _cost(whole), "delta": _cost(deltas)}
    rows = statistics.mean(event["rows"] for event in deltas)
    count = min(MOST_DELTAS, math.floor(DELTA_ROWS * whole[0]["rows"] / rows) + 1)
    mean = (cost["whole"] + count * cost["delta"]) / (count + 1)
    paces = [e["samples_per_s"] for e in events if e["kind"] == "progress"]
    return {
        "every_s": every_s,
        "snapshots": [{key: event[key] for key in keys} for event in taken],
        "samples_per_s": statistics.median(p for p in paces if p is not None),
        "deltas_to_a_whole": count,
        **{f"{kind}_share": seconds / every_s for kind, seconds in cost.items()},
        "share": mean / every_s,
    }


def _cost(events: Sequence[dict[str, Any]]) -> float:
    return statistics.mean(event["stall_s"] + event["cpu_s"] for event in events)


def print_table(found: dict[str, Any]) -> None:
    print("| snapshot | rows | stands still, s | processor, s | written in, s | of the interval |")
    print("|---|---|---|---|---|---|")
    for each in found["snapshots"]:
        kind = "whole" if each["delta_of"] is None else "delta"
        share = (each["stall_s"] + each["cpu_s"]) / found["every_s"]
        seconds = " | ".join(f"{each[key]:.2f}" for key in ("stall_s", "cpu_s", "seconds"))
        print(f"| {kind} | {each['rows']:,} | {seconds} | {share:.1%} |")
    cycle = f"a whole one and {found['deltas_to_a_whole']} deltas: {found['share']:.1%} of the time"
    print(f"\n{cycle}, at {found['samples_per_s']:,.0f} samples/s")


if __name__ == "__main__":
    sys.exit(main())
