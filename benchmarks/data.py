"""How fast one reader delivers Criteo-like samples, on one core.

    .venv/bin/python benchmarks/data.py [--rows 1000000] [--repeats 7] [--json FILE]

Reads an epoch of what `heterps data synth` writes (26 int64, 13 float32 and a label, snappy, row
groups of 65,536 rows), and of the same rows with pyarrow's own encodings and with zstd: 16 lanes,
shuffled, ids hashed, dense values transformed. Rates are samples per second of CPU time of the
process and of wall time, medians of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from heterps.data.batch import samples
from heterps.data.click_model import ClickModel
from heterps.data.criteo import DENSE, SPARSE
from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.prefetch import Prefetch
from heterps.data.reader import LaneReader
from heterps.data.writing import parquet_writer
from heterps.job.data import DataSpec

LANES, GROUP_ROWS = 16, 65536


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    print(
        f"{platform.processor() or platform.machine()}, one core, Python {sys.version.split()[0]}, "
        f"pyarrow {pa.__version__}, {options.rows:,} rows, median of {options.repeats}"
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), options.rows, options.repeats)
    print_rows(rows)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def measure(folder: Path, rows: int, repeats: int) -> list[dict[str, float | str]]:
    ours, plain, zstd = (folder / f"{name}.parquet" for name in ("ours", "plain", "zstd"))
    table = samples_to_read(rows)
    with parquet_writer(ours, table.schema) as writer:
        writer.write_table(table, row_group_size=GROUP_ROWS)
    pq.write_table(table, plain, row_group_size=GROUP_ROWS, compression="snappy")
    pq.write_table(table, zstd, row_group_size=GROUP_ROWS, compression="zstd")
    cases: dict[str, Callable[[], int]] = {
        "pyarrow alone": lambda: decode_alone(ours),
        "reader, micro-batches of 512": lambda: epoch(ours, 512),
        "reader, micro-batches of 4096": lambda: epoch(ours, 4096),
        "reader and prefetch thread, 512": lambda: ahead(ours, 512),
        "reader and prefetch thread, 4096": lambda: ahead(ours, 4096),
        "dictionaries: pyarrow alone": lambda: decode_alone(plain),
        "dictionaries: reader, 4096": lambda: epoch(plain, 4096),
        "dictionaries, zstd: reader, 4096": lambda: epoch(zstd, 4096),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(repeats):  # in turns, so that a busy moment hits all of them
        for name, case in cases.items():
            wall, cpu = time.perf_counter(), time.process_time()
            count = case()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            taken[name].append((count / cpu, count / wall))
    return [
        {
            "case": name,
            "samples_per_cpu_s": statistics.median(cpu for cpu, _ in rates),
            "samples_per_s": statistics.median(wall for _, wall in rates),
            "best_samples_per_s": max(wall for _, wall in rates),
        }
        for name, rates in taken.items()
    ]


def print_rows(rows: list[dict[str, float | str]]) -> None:
    print(f"\n{'case':34} {'M/cpu s':>9} {'M/s':>9} {'best M/s':>9}")
    for row in rows:
        cells = (row[key] for key in ("samples_per_cpu_s", "samples_per_s", "best_samples_per_s"))
        print(f"{row['case']:34} " + " ".join(f"{float(cell) / 1e6:9.2f}" for cell in cells))


def samples_to_read(rows: int) -> pa.Table:
    model = ClickModel()
    blocks = [model.block(number).table for number in range(-(-rows // GROUP_ROWS))]
    return pa.concat_tables(blocks).slice(0, rows)


def opened(path: Path, micro_batch_size: int) -> tuple[LaneReader, int]:
    spec = {"train": str(path), "dense": list(DENSE), "sparse": list(SPARSE)}
    data = Dataset.open(DataSpec.parse(spec), binary=True)
    plan = LanePlan(data.samples, LANES, micro_batch_size, 8)
    return LaneReader(data, Lanes(plan, data.sizes), range(LANES)), plan.per_epoch


def epoch(path: Path, micro_batch_size: int) -> int:
    reader, count = opened(path, micro_batch_size)
    return sum(samples(reader.micro_batch(j)) for j in range(count))


def ahead(path: Path, micro_batch_size: int) -> int:
    reader, count = opened(path, micro_batch_size)
    with Prefetch(reader, stop=count) as prefetch:
        return sum(samples(prefetch.micro_batch(j)) for j in range(count))


def decode_alone(path: Path) -> int:
    """Pyarrow without anything of ours: the roof."""
    file = pq.ParquetFile(path)
    groups = range(file.num_row_groups)
    return sum(file.read_row_group(i, use_threads=False).num_rows for i in groups)


if __name__ == "__main__":
    main()
