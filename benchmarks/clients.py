"""Clients of a parameter server, as processes of their own that take turns in step."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from heterps.ps import Client, TableSpec
from heterps.wire.keys import read_key
from workload import uniform, zipf_batches

Rates = dict[str, list[float]]


def fill_server(address: str, run: Path, rows: int, spec: TableSpec) -> None:
    """Push every id once."""
    with Client([address], read_key(run)) as client:
        table = client.create_table("t", spec)
        grads = np.ones((200_000, spec.dim), np.float32)
        for first in range(0, rows, len(grads)):
            ids = np.arange(first, min(first + len(grads), rows))
            table.push(ids, grads[: len(ids)])


def serve(
    places: dict[str, str], run: Path, rows: int, rounds: int, clients: int, draw: str
) -> Rates:
    """Rows per second of all clients together, in windows of a second that take turns."""
    context = multiprocessing.get_context("spawn")
    begin, answers = context.Barrier(clients), context.Queue()
    arguments = (places, run, rows, rounds, draw, begin, answers)
    workers = [context.Process(target=ask, args=(seed, *arguments)) for seed in range(clients)]
    for worker in workers:
        worker.start()
    reports = [answers.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    return {
        name: [sum(rates) for rates in zip(*(r[name] for r in reports), strict=True)]
        for name in reports[0]
    }


def ask(
    seed: int, places: dict[str, str], run: Path, rows: int, rounds: int, draw: str, begin: Any,
    answers: Any,
) -> None:  # fmt: skip
    """One client: a window for each way and verb, round after round, in step with the others."""
    count = 100_000
    make = {
        "uniform": lambda: uniform(rows, count, 16, seed + 1),
        "zipf": lambda: zipf_batches(1.1, rows, count, 16, seed),
    }
    batches = [batch.numpy() for batch in make[draw]()]
    rates: Rates = {f"{place} {verb}": [] for place in places for verb in ("pull", "push")}
    clients = {place: Client([address], read_key(run)) for place, address in places.items()}
    for _ in range(rounds):
        for name, taken in rates.items():
            place, verb = name.split()
            table = clients[place].table("t")
            grads = np.ones((count, table.dim), np.float32)
            push = partial(table.push_async, grads=grads)
            send: Callable[[Any], Any] = table.pull_async if verb == "pull" else push
            begin.wait(300)
            taken.append(window(send, batches))
    for client in clients.values():
        client.close()
    answers.put(rates)


def window(send: Callable[[Any], Any], batches: list[Any], seconds: float = 1.0) -> float:
    """Ids per second, two calls under way."""
    started, done = time.perf_counter(), 0
    waiting = [send(batches[0])]
    while time.perf_counter() - started < seconds:
        waiting.append(send(batches[(done + 1) % len(batches)]))
        waiting.pop(0).result()
        done += 1
    waiting.pop().result()
    return (done + 1) * len(batches[0]) / (time.perf_counter() - started)
