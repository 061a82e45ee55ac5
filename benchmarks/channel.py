"""Tensors between two workers on one host: round trips, and bytes per second with four under way.

    .venv/bin/python benchmarks/channel.py [--seconds 1] [--rounds 5] [--json FILE]

The other worker is a process that sends back what it gets. Medians over the rounds, which take
turns. The machine should be idle.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import secrets
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from heterps.runtime.channel import Mesh
from heterps.testing.meshes import address_for

SIZES = {"8 KB": 8_000, "200 KB": 200_000, "2 MB": 2_000_000, "20 MB": 20_000_000}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "ipc": ("ipc", {}),
    "ipc, bf16": ("ipc", {"wire_dtype": "bf16"}),
    "tcp": ("tcp", {}),
    "tcp, encrypted": ("tcp", {"encrypt": True}),
}
UNDER_WAY = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    print(f"{platform.processor() or platform.machine()}, {cores} cores, torch {torch.__version__}")
    print("median round trip in µs / MB/s both ways together\n")
    figures = measure(options.rounds, options.seconds)
    print("|", *(f"| {size}" for size in SIZES), "|")
    print("|---" * (1 + len(SIZES)) + "|")
    for way in WAYS:
        cells = [figures[way][size] for size in SIZES]
        texts = [f"{c['round_trip_us']:.0f} / {c['mb_per_s']:.0f}" for c in cells]
        print(f"| {way} | " + " | ".join(texts) + " |")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=1))


def measure(rounds: int, seconds: float) -> dict[str, dict[str, dict[str, float]]]:
    key = secrets.token_bytes(32)
    trips: dict[tuple[str, str], list[float]] = {}
    rates: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        links = {way: Echo(key, Path(folder), at, *WAYS[way]) for at, way in enumerate(WAYS)}
        for _ in range(rounds):
            for way, link in links.items():
                for size, values in SIZES.items():
                    tensors = {"x": torch.randn(values // 4)}
                    trips.setdefault((way, size), []).append(link.round_trip_s(tensors, seconds))
                    rate = link.trips_per_s(tensors, seconds) * 2 * values
                    rates.setdefault((way, size), []).append(rate)
        for link in links.values():
            link.close()
    return {
        way: {
            size: {
                "round_trip_us": statistics.median(trips[way, size]) * 1e6,
                "mb_per_s": statistics.median(rates[way, size]) / 1e6,
            }
            for size in SIZES
        }
        for way in WAYS
    }


class Echo:
    """This worker, and the process that answers it."""

    def __init__(
        self, key: bytes, folder: Path, at: int, transport: str, options: dict[str, Any]
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._book, theirs = context.Pipe()
        address = address_for(transport, folder, str(at))
        self._process = context.Process(target=echo, args=(key, address, options, theirs))
        self._process.start()
        self._mesh = Mesh(key, 0, (0, 0), **options)
        self._mesh.connect({(1, 0): self._book.recv()})

    def round_trip_s(self, tensors: dict[str, torch.Tensor], seconds: float) -> float:
        """The median."""
        taken = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(taken) < 5:
            started = time.perf_counter()
            self._mesh.send_forward(0, len(taken), tensors)
            assert self._mesh.receive(20)
            taken.append(time.perf_counter() - started)
        return statistics.median(taken)

    def trips_per_s(self, tensors: dict[str, torch.Tensor], seconds: float) -> float:
        sent = back = 0
        started = time.perf_counter()
        while time.perf_counter() < started + seconds or back < 5:
            while sent - back < UNDER_WAY:
                self._mesh.send_forward(0, sent, tensors)
                sent += 1
            back += len(self._mesh.receive(20))
        rate = back / (time.perf_counter() - started)
        while back < sent:
            back += len(self._mesh.receive(20))
        return rate

    def close(self) -> None:
        self._mesh.close()
        self._book.close()
        self._process.join(10)


def echo(key: bytes, address: str, options: dict[str, Any], book: Any) -> None:
    torch.set_num_threads(1)
    with Mesh(key, 0, (1, 0), **options) as mesh:
        book.send(mesh.listen(address))
        while not book.poll(0):
            for arrived in mesh.receive(0.2):
                mesh.send_back(arrived.replica, arrived.micro_batch, arrived.tensors)


if __name__ == "__main__":
    main()
