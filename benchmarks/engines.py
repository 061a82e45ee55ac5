"""The Ray engine against the local one on this machine: whole runs of `heterps train`, in turns.

    .venv/bin/python benchmarks/engines.py [--pairs 10] [--batch 4096] [--json FILE]

Every run of the Ray engine has a cluster of its own, as a job without an address has. All passes
over the data but the first count. A pair is one run of each engine, the one that goes first in
turn; its ratio is Ray's samples per second over the local engine's. The interval holds the median
of such ratios with the confidence that is shown, whatever their distribution. With `--json` pairs
are added to those in the file, if they are of the same runs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commands import end_in_order, output_of
from heterps_run import job_document, later_passes, shape_of
from ps import machine
from workload import training_data

ROOT = Path(__file__).parents[1]
STALENESS = 2
PASSES = 10  # some 20 s of a run that count, on the quickest machine so far
ENGINES = ("local", "ray")


def samples_per_s(engine: str, batch: int, stages: int, data: Path) -> float:
    with tempfile.TemporaryDirectory(prefix="heterps-bench-") as folder:
        job, run = Path(folder) / "job.json", Path(folder) / "run"
        shape = shape_of(stages, STALENESS, batch)
        document = job_document(batch, STALENESS, shape, data, PASSES) | {"engine": engine}
        job.write_text(json.dumps(document))
        output_of([sys.executable, "-m", "heterps", "train", str(job), "--out", str(run), "--json"])
        return float(later_passes(run / "events.jsonl", PASSES)["samples_per_s"])


def pair(number: int, batch: int, stages: int, data: Path) -> dict[str, float]:
    order = ENGINES if number % 2 == 0 else ENGINES[::-1]
    return {engine: samples_per_s(engine, batch, stages, data) for engine in order}


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The second smallest and the second largest, or the smallest and the largest of a few, and how
    sure it is that the median is between them."""
    ordered, count = sorted(values), len(values)
    out = 1 if count >= 8 else 0
    missed = 2 * sum(math.comb(count, k) for k in range(out + 1)) / 2**count
    return ordered[out], ordered[-1 - out], 1 - missed


def summary(pairs: Sequence[dict[str, float]]) -> dict[str, Any]:
    ratios = [each["ray"] / each["local"] for each in pairs]
    low, high, confidence = interval(ratios)
    return {
        "pairs": list(pairs),
        "samples_per_s": {
            name: statistics.median(each[name] for each in pairs) for name in ENGINES
        },
        "ratio": statistics.median(ratios),
        "interval": [low, high],
        "confidence": confidence,
    }


def known_pairs(file: Path | None, runs: dict[str, Any]) -> list[dict[str, float]]:
    if file is None or not file.exists():
        return []
    found = json.loads(file.read_text())
    if found.get("runs") != json.loads(json.dumps(runs)):
        raise SystemExit(f"{file} has pairs of other runs: name another file")
    pairs: list[dict[str, float]] = found["pairs"]
    return pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--stages", type=int, choices=(1, 2), default=1)
    parser.add_argument("--samples", type=int, default=131_072)
    parser.add_argument("--json", type=Path, help="where results are kept and added to")
    options = parser.parse_args()
    end_in_order()
    _, data = training_data(ROOT / "build/bench/data", options.samples)
    shape = shape_of(options.stages, STALENESS, options.batch)
    document = job_document(options.batch, STALENESS, shape, data, PASSES)
    runs = {"job": document, "samples": options.samples}
    pairs = known_pairs(options.json, runs)
    for _ in range(options.pairs):
        pairs.append(pair(len(pairs), options.batch, options.stages, data))
        shown = ", ".join(f"{name} {pairs[-1][name]:,.0f}" for name in ENGINES)
        print(f"pair {len(pairs)}: {shown} samples/s", flush=True)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            about = {**summary(pairs), "machine": machine(), "runs": runs}
            options.json.write_text(json.dumps(about, indent=2))
    found = summary(pairs)
    low, high = found["interval"]
    print(f"ray / local: {found['ratio']:.3f} ({low:.3f} to {high:.3f}, {found['confidence']:.0%})")


if __name__ == "__main__":
    main()
