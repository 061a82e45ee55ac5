"""The parameter server's figures of the README, side by side with torch, FBGEMM and Redis.

    .venv/bin/python benchmarks/ps.py [--only store,zipf,memory,redis,cold,server] [--json FILE]

Every figure is a median over rounds in which the competitors take turns, all in this one run; so is
every ratio, of those within a round. Rows per second count the ids asked for. FBGEMM takes part
with the extra `bench`, Redis if redis-server is on the path.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clients import fill_server, serve
from heterps.ps import RowwiseAdagrad, SparseTable, TableSpec, start_servers
from heterps.wire.keys import create_key
from rivals import LR, DenseTorch, make_fbgemm, redis_server, scatter_add
from workload import BATCH, SLOT_IDS, SLOTS, criteo_like, uniform, zipf_batches

DIM = 16
ROWS = 10_000_000
PAYLOAD_BYTES = 4 * DIM + 4 + 16  # vector, rule state, and what the row has to carry
SETTLE_S = 0.1
SHORT = 3  # times as many rounds where one takes a fraction of a second
AHEAD = 64  # batches; input runs ahead of training
RULE = RowwiseAdagrad(lr=LR)

Figures = dict[str, Any]
Work = Callable[[int], None]  # of the round's batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--cold", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    result: Figures = {"machine": machine()}
    print(", ".join(f"{key} {value}" for key, value in result["machine"].items()))
    for name in options.only.split(","):
        result[name] = SECTIONS[name](options)
        gc.collect()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def machine() -> Figures:
    """What was measured on; with priority, where that is allowed, since others may be at work."""
    try:
        os.nice(-20)
        priority = "highest"
    except PermissionError:
        priority = "normal"
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(": ", 1)[1] for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "ram_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "priority": priority,
        "load": round(os.getloadavg()[0], 2),
    }


def take_turns(works: dict[str, Work], ids: int, rounds: int, calls: int = 10) -> Figures:
    """Median rows per second of each; the order turns from round to round.

    A turn begins when the threads of the one before have gone to sleep (torch's spin for some
    milliseconds after a call, on the cores that the next one needs) and with a call that does not
    count.
    """
    names = list(works)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        works[name](0)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(SETTLE_S)
            works[name](turn * calls - 1)
            started = time.perf_counter()
            for call in range(calls):
                works[name](turn * calls + call)
            seconds[name].append((time.perf_counter() - started) / calls)
    return {name: rates_of([ids / s for s in taken]) for name, taken in seconds.items()}


def rates_of(rows_per_s: list[float]) -> Figures:
    """The median is the figure; the best round shows what a disturbed run has hidden."""
    return {
        "median": statistics.median(rows_per_s),
        "best": max(rows_per_s),
        "rounds": rows_per_s,
    }


def ratio(one: Figures, other: Figures) -> float:
    """The median over the rounds: within one the machine has the same pace for both."""
    pairs = zip(one["rounds"], other["rounds"], strict=True)
    return statistics.median(a / b for a, b in pairs)


def show(title: str, rates: Figures, base: str) -> None:
    if title:
        print(f"\n{title}\n  {'M rows/s':34} {'median':>8} {'best':>8}")
    for name, rate in rates.items():
        print(
            f"  {name:34} {rate['median'] / 1e6:8.2f} {rate['best'] / 1e6:8.2f}"
            f"   {ratio(rate, rates[base]):5.2f} x {base}"
        )


def filled(rows: int, threads: int, **settings: Any) -> SparseTable:
    """A table that holds the ids from 0 to ``rows``."""
    table = SparseTable(DIM, RULE, threads=threads, **settings)
    size = 500_000
    grads = np.random.default_rng(0).normal(size=(size, DIM)).astype(np.float32)
    for first in range(0, rows, size):
        ids = np.arange(first, min(first + size, rows))
        table.push(ids, grads[: len(ids)])
    return table


def store_section(options: argparse.Namespace) -> Figures:
    """100k uniform ids a call."""
    count = 100_000
    batches = uniform(options.rows, count, 64)
    out, grads = torch.empty(count, DIM), torch.randn(count, DIM)
    dense = DenseTorch(options.rows, DIM)
    figures = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        table = filled(options.rows, threads)
        pulls: dict[str, Work] = {
            "torch index_select": lambda i: dense.pull(batches[i % 64], out),
            "store pull": lambda i, t=table: t.pull(batches[i % 64], out=out),  # type: ignore[misc]
        }
        pushes: dict[str, Work] = {
            "torch index_add": lambda i: dense.add(batches[i % 64], grads),
            "store push, row-wise Adagrad": lambda i, t=table: t.push(batches[i % 64], grads),  # type: ignore[misc]
        }
        title = f"{options.rows:,} rows x {DIM}, {count:,} uniform ids a call, {threads} threads"
        rates = take_turns(pulls, count, SHORT * options.rounds)
        show(title, rates, "torch index_select")
        more = take_turns(pushes, count, SHORT * options.rounds)
        show("", more, "torch index_add")
        figures[f"{threads} threads"] = {**rates, **more}
        del pulls, pushes, table
        gc.collect()
    return figures


def zipf_section(options: argparse.Namespace) -> Figures:
    """Pull and row-wise Adagrad push of the training workload: 4096 samples x 26 slots."""
    count = BATCH * SLOTS
    batches = criteo_like(32)
    per_slot = [b.reshape(BATCH, SLOTS).T.reshape(-1) % SLOT_IDS for b in batches]
    offsets = torch.arange(count + 1)
    out, grads = torch.empty(count, DIM), torch.randn(count, DIM)
    dense = DenseTorch(SLOTS * SLOT_IDS, DIM)
    fbgemm = make_fbgemm(SLOTS, SLOT_IDS, DIM)
    wide = torch.randn(BATCH, SLOTS * DIM)
    figures: Figures = {"distinct": statistics.mean(len(torch.unique(b)) for b in batches)}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        table = filled(SLOTS * SLOT_IDS, threads)

        def ours(i: int, table: SparseTable = table) -> None:
            table.pull(batches[i % 32], out=out)
            table.push(batches[i % 32], grads)

        works: dict[str, Work] = {
            "torch unique, select, add": lambda i: dense.pull_and_push(batches[i % 32], out, grads),
            "the same with scatter_add": lambda i: dense.pull_and_push(
                batches[i % 32], out, grads, scatter_add
            ),
            "store pull + push": ours,
        }
        if fbgemm is not None:
            works["FBGEMM forward + backward"] = lambda i: fbgemm(
                per_slot[i % 32], offsets
            ).backward(wide)
        rates = take_turns(works, count, SHORT * options.rounds, calls=5)
        show(f"Zipf ids, {BATCH} x {SLOTS}, {threads} threads", rates, "torch unique, select, add")
        figures[f"{threads} threads"] = rates
        del works, ours, table
        gc.collect()
    return figures


def memory_section(options: argparse.Namespace) -> Figures:
    """What a row costs, by the process's own memory and by the table's books."""
    before = resident_bytes()
    table = filled(options.rows, 2)
    resident = (resident_bytes() - before) / len(table)
    booked = table.stats()["memory_bytes"] / len(table)
    print(
        f"\nmemory per row: {resident:.1f} bytes resident, {booked:.1f} booked, payload "
        f"{PAYLOAD_BYTES}: {resident / PAYLOAD_BYTES:.2f} x"
    )
    return {"resident_bytes": resident, "booked_bytes": booked, "payload_bytes": PAYLOAD_BYTES}


def redis_section(options: argparse.Namespace) -> Figures:
    """64-byte values, 100k uniform ids of a million, 10k to a command."""
    rows, count = 1_000_000, 100_000
    value = bytes(4 * DIM)
    with redis_server(len(value)) as redis:
        if redis is None:
            print("\nredis-server is not on the path")
            return {}
        for ids in np.array_split(np.arange(rows), 100):
            redis.mset(ids, value)
        table = filled(rows, 1)
        out, grads = np.empty((count, DIM), np.float32), np.ones((count, DIM), np.float32)
        rates: dict[str, list[float]] = {}
        for batch in uniform(rows, count, options.rounds):
            ids = batch.numpy()
            for name, seconds in (
                ("Redis MGET", lambda i=ids: redis.seconds_of("mget", i, value)),
                ("store pull", lambda i=ids: timed(lambda: table.pull(i, out=out))),
                ("Redis MSET", lambda i=ids: redis.seconds_of("mset", i, value)),
                ("store push", lambda i=ids: timed(lambda: table.push(i, grads))),
            ):
                rates.setdefault(name, []).append(count / seconds())
    figures = {name: rates_of(taken) for name, taken in rates.items()}
    show(f"Redis, {rows:,} rows of 64 bytes, unix socket, 1 thread", figures, "Redis MGET")
    return figures


def cold_section(options: argparse.Namespace) -> Figures:
    """A quarter of the memory, the rest of the rows on disk; the same traffic on both tables."""
    calls = AHEAD
    count = (options.rounds + 2) * calls + AHEAD  # so that there is always something to load ahead
    batches = zipf_batches(1.1, options.rows, BATCH * SLOTS, count)
    hot = filled(options.rows, 2)
    budget = int(hot.stats()["memory_bytes"]) // 4
    with tempfile.TemporaryDirectory(dir=options.cold) as folder:
        cold = filled(options.rows, 2, memory_bytes=budget, path=folder)
        rates = cold_traffic(hot, cold, batches, calls)
        stats = cold.stats()
        same = all_equal(hot, cold, options.rows)
        cold.close()
    show(f"a quarter of {options.rows:,} rows in memory, Zipf(1.1)", rates, "all in memory")
    print(f"  bit-identical at the end: {same}")
    print("  " + ", ".join(f"{key} {value:g}" for key, value in stats.items()))
    return {**rates, "identical": same, "budget_bytes": budget, "stats": stats}


def cold_traffic(
    hot: SparseTable, cold: SparseTable, batches: list[torch.Tensor], calls: int
) -> Figures:
    """Rounds of ``calls`` batches on one table, then on the other; the first two warm up.

    Loading ahead keeps pace with the traffic, so it does not go on in the other's time.
    """
    count = len(batches[0])
    grads, out = torch.randn(count, DIM), torch.empty(count, DIM)
    seconds: dict[str, list[float]] = {"all in memory": [], "budget of a quarter": []}
    for batch in batches[:AHEAD]:
        cold.prefetch(batch)
    for first in range(0, len(batches) - AHEAD, calls):
        for name, table in zip(seconds, (hot, cold), strict=True):
            started = time.perf_counter()
            for at in range(first, first + calls):
                table.prefetch(batches[at + AHEAD])
                table.pull(batches[at], out=out)
                table.push(batches[at], grads)
            seconds[name].append(time.perf_counter() - started)
    return {name: rates_of([calls * count / each for each in s[2:]]) for name, s in seconds.items()}


def server_section(options: argparse.Namespace) -> Figures:
    """One server process; clients are processes too, each with two calls under way."""
    figures: Figures = {}
    spec = TableSpec(dim=DIM, rule=RULE.name, lr=RULE.lr)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        create_key(run)
        with start_servers(run, 1, listen="127.0.0.1") as (server,):
            fill_server(server.addresses[0], run, options.rows, spec)
            places = dict(zip(("ipc", "tcp"), server.addresses, strict=True))
            for clients in (1, 4):
                for draw in ("uniform", "zipf"):
                    taken = serve(places, run, options.rows, options.rounds, clients, draw)
                    rates = {name: rates_of(each) for name, each in taken.items()}
                    show(f"through a server, {clients} clients, {draw} ids", rates, "ipc pull")
                    figures[f"{clients} clients, {draw}"] = rates
    return figures


def all_equal(one: SparseTable, other: SparseTable, rows: int) -> bool:
    chunks = (np.arange(a, min(a + 200_000, rows)) for a in range(0, rows, 200_000))
    return all(one.pull(ids).tobytes() == other.pull(ids).tobytes() for ids in chunks)


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SECTIONS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "store": store_section,
    "zipf": zipf_section,
    "memory": memory_section,
    "redis": redis_section,
    "cold": cold_section,
    "server": server_section,
}

if __name__ == "__main__":
    main()
