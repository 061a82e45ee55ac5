"""Parquet from a real HDFS on this machine: the product against the raw client.

``python benchmarks/hdfs.py`` writes a data set to a NameNode and a DataNode of its own. In turns,
it reads it with hdfs-native and pyarrow alone, with the product's decoding, and through a reader of
16 lanes, from HDFS and from the cache. Needs ``make build/hadoop``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from heterps.data.batch import Slice, make_batch
from heterps.data.columns import decode
from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.data.shuffle import permutation
from heterps.data.synthetic import SynthSpec, synthesise
from heterps.job.data import DataSpec
from heterps.testing.hdfs import Hdfs

_MICRO_BATCH = 4096


def raw(spec: DataSpec, folder: str) -> int:
    """The client alone, and columns as arrays: row group by row group, in the order of the files,
    neither shuffled nor cut into micro-batches."""
    return sum(decode(table, spec, None, labels=True).rows for table in _tables(spec, folder))


def raw_batches(spec: DataSpec, folder: str) -> int:
    """The client alone with the product's decoding: rows shuffled, micro-batches of tensors."""
    rows = 0
    for number, table in enumerate(_tables(spec, folder)):
        order = permutation(table.num_rows, number)
        columns = decode(table, spec, order, labels=True)
        for start in range(0, columns.rows, _MICRO_BATCH):
            stop = min(start + _MICRO_BATCH, columns.rows)
            rows += len(make_batch([Slice(columns, start, stop)])["label"])
    return rows


def _tables(spec: DataSpec, folder: str) -> Iterator[pa.Table]:
    file_system, path = fsspec.core.url_to_fs(folder)
    columns = list(spec.column_paths())
    for name in sorted(file_system.ls(path, detail=False)):
        with file_system.open(name) as opened, pq.ParquetFile(opened, pre_buffer=True) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns, use_threads=False)


def product(spec: DataSpec) -> int:
    data = Dataset.open(spec)
    plan = LanePlan(data.samples, 16, _MICRO_BATCH)
    reader = LaneReader(data, Lanes(plan, data.sizes), range(16), stop=plan.per_epoch)
    return sum(len(reader.micro_batch(j)["label"]) for j in range(plan.per_epoch))


class Rate(NamedTuple):
    """Samples per second: by the clock, and of the processor's time that this process took."""

    by_clock: float
    by_cpu: float


def rate(read: Callable[[], int]) -> Rate:
    began, used = time.perf_counter(), time.process_time()
    rows = read()
    return Rate(rows / (time.perf_counter() - began), rows / (time.process_time() - used))


def in_turn(ways: Mapping[str, Callable[[], int]], number: int) -> dict[str, Rate]:
    """Each once; who begins changes from round to round."""
    names = list(ways)
    first = number % len(names)
    return {name: rate(ways[name]) for name in names[first:] + names[:first]}


def upload(local: Path, folder: str) -> float:
    """Bytes that were written."""
    file_system, path = fsspec.core.url_to_fs(folder)
    files = sorted(local.glob("*.parquet"))
    for file in files:
        file_system.pipe_file(f"{path}/{file.name}", file.read_bytes())
    return sum(file.stat().st_size for file in files)


def measure(rows: int, rounds: int, work: Path) -> dict[str, Any]:
    synthesise(SynthSpec(rows, 1, files=4), work / "data")
    section = DataSpec.parse(_section(work / "data"))
    with Hdfs(work / "hdfs") as server:
        folder = f"{server.url}/bench"
        size = upload(work / "data" / "train", folder)
        spec = section.model_copy(update={"train": (folder,), "validation": None})
        cached = DataSpec.parse({**spec.as_document(), "cache": {"path": str(work / "cache")}})
        ways = {
            "raw client, arrays alone": lambda: raw(spec, folder),
            "raw client": lambda: raw_batches(spec, folder),
            "product": lambda: product(spec),
            "product, cached": lambda: product(cached),
        }
        for read in ways.values():
            read()  # warm: the servers' page cache, and ours
        taken = [in_turn(ways, number) for number in range(rounds)]
    return {"rows": rows, "megabytes": size / 1e6, **_summary(taken)}


def _summary(taken: list[dict[str, Rate]]) -> dict[str, Any]:
    """Medians, and those of the pairs: what disturbed one of a round disturbed the other too."""
    figures: dict[str, Any] = {"rounds": [{k: v._asdict() for k, v in t.items()} for t in taken]}
    for field in Rate._fields:
        rates = [{name: getattr(turn[name], field) for name in taken[0]} for turn in taken]
        ratios = [each["product"] / each["raw client"] for each in rates]
        figures[field] = {
            "samples_per_s": {k: statistics.median(r[k] for r in rates) for k in rates[0]},
            "product_over_raw": statistics.median(ratios),
        }
    return figures


def _section(folder: Path) -> dict[str, Any]:
    import yaml

    section: dict[str, Any] = yaml.safe_load((folder / "data.yaml").read_text())["data"]
    return section


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heterps-hdfs-") as work:
        found = measure(options.rows, options.rounds, Path(work))
    print(f"{found['rows']:,} rows, {found['megabytes']:.0f} MB")
    print(f"{'M samples/s':26} {'clock':>6} {'CPU':>6}")
    for name in found["by_clock"]["samples_per_s"]:
        values = (found[field]["samples_per_s"][name] / 1e6 for field in Rate._fields)
        print(f"{name:26}", *(f"{value:6.2f}" for value in values))
    ratios = (found[field]["product_over_raw"] for field in Rate._fields)
    print(f"{'product / raw client':26}", *(f"{ratio:6.2f}" for ratio in ratios))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
