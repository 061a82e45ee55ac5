"""What every peer does alike: its options, samples in memory, the clock, one line of JSON.

    PYTHON benchmarks/peers/PEER.py --data FILE.npz [--batch 4096] [--steps 40] [--warmup 8]

It runs in the peer's own environment, so it needs numpy only.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

SLOTS, SLOT_IDS, DIM, DENSE = 26, 1_000_000, 16, 13
HIDDEN = (400, 400, 400)
SPARSE_LR, SPARSE_EPS, DENSE_LR = 0.05, 1e-10, 1e-3

Step = Callable[[int], SupportsFloat]  # trains on a batch, by number, and gives its mean loss


@dataclass(frozen=True)
class Samples:
    ids: np.ndarray  # int64 [n x SLOTS], below SLOT_IDS
    dense: np.ndarray  # float32 [n x DENSE]
    labels: np.ndarray  # float32 [n]

    @classmethod
    def load(cls, path: Path) -> Samples:
        with np.load(path) as arrays:
            return cls(arrays["ids"], arrays["dense"], arrays["labels"])

    def batches(self, size: int) -> list[Samples]:
        firsts = range(0, len(self.labels) - size + 1, size)
        return [self.part(slice(first, first + size)) for first in firsts]

    def part(self, rows: slice) -> Samples:
        return Samples(self.ids[rows], self.dense[rows], self.labels[rows])

    @property
    def merged_ids(self) -> np.ndarray:
        """Row numbers in one table that holds every slot's ids."""
        return self.ids + np.arange(SLOTS) * SLOT_IDS


def arguments(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="from workload.training_data")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=40, help="that are timed")
    parser.add_argument("--warmup", type=int, default=8, help="steps before")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="the only form; accepted for clarity")
    return parser.parse_args()


def measure(step: Step, options: argparse.Namespace) -> tuple[float, float]:
    """Samples per second and the mean loss of the timed steps."""
    for number in range(options.warmup):
        float(step(number))
    started = time.perf_counter()
    losses = [step(options.warmup + number) for number in range(options.steps)]
    float(losses[-1])  # a framework that runs behind has to arrive
    seconds = time.perf_counter() - started
    return options.steps * options.batch / seconds, float(np.mean([float(x) for x in losses]))


def answer(
    rate: float, loss: float, options: argparse.Namespace, versions: dict[str, str], **more: Any
) -> None:
    figures = {"samples_per_s": rate, "loss": loss, "versions": versions}
    print(json.dumps({**figures, "threads": options.threads, **more}), flush=True)
