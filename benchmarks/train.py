"""Training speed side by side with torch, TorchRec, TensorFlow and Paddle's parameter server.

    benchmarks/peers/install.sh
    .venv/bin/python benchmarks/train.py [--batch 4096,512] [--pairs 10] [--peers all] [--json FILE]

Model and data are those of the README's table. In every round each contestant runs once, in fresh
processes and on its own; the order turns from round to round. A run passes over the samples several
times, and all passes but the first are timed. A ratio is taken within a round; the figure is the
median over the rounds with an interval that holds the true median in 95 of 100 cases at least.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from commands import end_in_order, output_of
from heterps_run import heterps_samples_per_s
from ps import machine
from workload import training_data

ROOT = Path(__file__).parents[1]
SAMPLES, PASSES = 65_536, 10  # at 100,000 samples a second some 6 s that count
BUSY = 0.1  # the share of the CPU that others may use
# Each with the environment that benchmarks/peers/install.sh makes; torch is in ours.
PEERS = {
    "torch_plain": None,
    "torch_dense": None,
    "paddle_ps": "paddle",
    "torchrec_fused": "torchrec",
    "tensorflow_keras": "tensorflow",
}
# Stages and staleness.
OURS = {
    "one stage": (1, 0),
    "one stage, staleness 1": (1, 1),
    "two stages": (2, 0),
    "two stages, staleness 1": (2, 1),
}

Figures = dict[str, Any]
Run = Callable[[], Figures]


@dataclass
class Contestant:
    """``rounds`` holds a result per round, None where it failed."""

    name: str
    run: Run
    rounds: list[Figures | None] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        return [result["samples_per_s"] for result in self.rounds if result is not None]


def main() -> None:
    options = parsed()
    end_in_order()
    console = Console()
    result: Figures = {"machine": machine(), "batches": {}}
    console.print(", ".join(f"{key} {value}" for key, value in result["machine"].items()))
    files = training_data(ROOT / "build/bench/data", options.samples)
    peers = installed(options.peers, console)
    for batch in options.batch:
        contestants = [
            *our_runs(options, batch, files[1]),
            *peer_runs(options, peers, batch, files[0]),
        ]
        for number in range(options.pairs):
            take_turns(contestants, number, options.pairs, console)
        result["batches"][batch] = summary(contestants)
        show(console, batch, result["batches"][batch])
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = parser.add_argument("--batch", default="4096,512", help="sizes, with commas")
    sizes.type = lambda text: [int(size) for size in text.split(",")]
    parser.add_argument("--pairs", type=int, default=10, help="rounds")
    parser.add_argument("--peers", default="all", help="all, none, or names with commas")
    parser.add_argument("--runs", default="all", help="ours: all, none, or names with semicolons")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="in a pass")
    parser.add_argument(
        "--passes", type=int, default=PASSES, help="of which the first is not timed"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.passes < 2:
        parser.error("--passes: expected 2 or more, since the first is not timed")
    options.peers = chosen(parser, options.peers, PEERS, ",")
    options.runs = chosen(parser, options.runs, OURS, ";")
    return options


def chosen(
    parser: argparse.ArgumentParser, text: str, known: dict[str, Any], comma: str
) -> list[str]:
    if text in ("all", "none"):
        return list(known) if text == "all" else []
    names = [name.strip() for name in text.split(comma)]
    for name in names:
        if name not in known:
            parser.error(f"'{name}' is not one of: {f'{comma} '.join(known)}")
    return names


def installed(names: list[str], console: Console) -> dict[str, Path]:
    """The Python of each peer that can run; of the others it says so."""
    found = {}
    for name in names:
        own = PEERS[name]
        home = None if own is None else ROOT / "build/peers" / own
        if home is None:
            found[name] = Path(sys.executable)
        elif (home / ".installed").exists():
            found[name] = home / "bin/python"
        else:
            console.print(
                f"{name}: left out: benchmarks/peers/install.sh {own} has not installed it"
            )
    return found


def our_runs(options: argparse.Namespace, batch: int, data: Path) -> list[Contestant]:
    def run(name: str) -> Run:
        stages, staleness = OURS[name]
        return lambda: heterps_samples_per_s(batch, staleness, stages, data, options.passes)

    return [Contestant(name, run(name)) for name in options.runs]


def peer_runs(
    options: argparse.Namespace, peers: dict[str, Path], batch: int, data: Path
) -> list[Contestant]:
    def run(name: str) -> Run:
        return lambda: peer_result(peers[name], name, batch, data, options.passes)

    return [Contestant(name, run(name)) for name in peers]


def peer_result(python: Path, name: str, batch: int, data: Path, passes: int = 2) -> Figures:
    """One pass to warm up, the others are timed. Raises RuntimeError."""
    steps = samples_in(data) // batch
    command = [str(python), str(ROOT / "benchmarks/peers" / f"{name}.py"), "--json"]
    command += ["--data", str(data), "--batch", str(batch)]
    command += ["--steps", str(steps * (passes - 1)), "--warmup", str(steps)]
    return dict(json.loads(output_of(command).splitlines()[-1]))


def samples_in(data: Path) -> int:
    return int(data.stem.rpartition("-")[2])


def take_turns(contestants: list[Contestant], number: int, rounds: int, console: Console) -> None:
    first = number % max(len(contestants), 1)
    for contestant in contestants[first:] + contestants[:first]:
        watched = Watch()
        try:
            result = contestant.run()
        except RuntimeError as error:
            contestant.rounds.append(None)
            last = (str(error).splitlines() or ["?"])[-1]
            console.print(f"{contestant.name}: failed: {last}", markup=False)
            continue
        result["others_cpu"] = watched.others_share()
        contestant.rounds.append(result)
        console.print(
            f"round {number + 1}/{rounds}  {contestant.name:24} "
            f"{result['samples_per_s']:8,.0f} samples/s  loss {result['loss']:.4f}  "
            f"others {result['others_cpu']:.0%}",
            highlight=False,
        )


class Watch:
    """What share of the machine's CPU others used meanwhile. On a busy machine no rate means much,
    and ratios no more: the kernel deals out time to sessions (sched_autogroup), so that whoever has
    several processes, as we and Paddle do, gets several shares.
    """

    def __init__(self) -> None:
        self._began = self._now()

    def others_share(self) -> float:
        all_s, idle_s, own_s = (
            after - before for before, after in zip(self._began, self._now(), strict=True)
        )
        return max(0.0, (all_s - idle_s - own_s) / all_s) if all_s else math.nan

    def _now(self) -> tuple[float, float, float]:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]
        per_s = 100  # USER_HZ, whatever the kernel's own
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(each.ru_utime + each.ru_stime for each in used)
        return sum(ticks) / per_s, (ticks[3] + ticks[4]) / per_s, own


def summary(contestants: list[Contestant]) -> Figures:
    rated = [contestant for contestant in contestants if contestant.rates]
    ours = [contestant for contestant in rated if contestant.name in OURS]
    return {
        "samples_per_s": {each.name: spread(each.rates) for each in rated},
        "ratios": {
            own.name: {other.name: ratio(own, other) for other in rated if compared(own, other)}
            for own in ours
        },
        "rounds": {each.name: each.rounds for each in contestants},
    }


def compared(own: Contestant, other: Contestant) -> bool:
    """With all peers, and two stages with one at the same staleness."""
    if other.name not in OURS:
        return True
    return OURS[own.name][0] == 2 and OURS[other.name] == (1, OURS[own.name][1])


def ratio(own: Contestant, other: Contestant) -> Figures:
    """By rounds in which both ran."""
    pairs = zip(own.rounds, other.rounds, strict=True)
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return spread([a["samples_per_s"] / b["samples_per_s"] for a, b in both])


def spread(values: list[float]) -> Figures:
    """The median, and the order statistics around it that enclose the true one with a probability
    of at least 95 %, or as much as so few values give: k from each end misses it only if fewer
    than k values fall on one side, as so many tosses of a coin."""
    n, ordered = len(values), sorted(values)
    if not n:
        return {"median": math.nan, "low": math.nan, "high": math.nan, "confidence": 0.0, "n": 0}
    confidence = [1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n for k in range(1, n)]
    k = max((k for k, share in enumerate(confidence, 1) if share >= 0.95), default=1)
    return {
        "median": statistics.median(values),
        "low": ordered[k - 1],
        "high": ordered[n - k],
        "confidence": confidence[k - 1] if confidence else 0.0,
        "n": n,
    }


def show(console: Console, batch: int, figures: Figures) -> None:
    rates = Table("samples/s", "median", "from", "to", "others' CPU", title=f"batch {batch:,}")
    busiest = 0.0
    for name, rate in figures["samples_per_s"].items():
        rounds = [each for each in figures["rounds"][name] if each is not None]
        others = statistics.median(each["others_cpu"] for each in rounds)
        busiest = max(busiest, others)
        cells = (f"{rate[key]:,.0f}" for key in ("median", "low", "high"))
        rates.add_row(name, *cells, f"{others:.0%}")
    console.print(rates)
    if busiest > BUSY:
        console.print(
            f"others used up to {busiest:.0%} of the CPU: this is no evidence, do it again"
        )
    if not figures["ratios"]:
        return
    others = list(dict.fromkeys(name for row in figures["ratios"].values() for name in row))
    ratios = Table("ratio to", *figures["ratios"], title=f"batch {batch:,}: median, interval")
    for other in others:
        ratios.add_row(other, *(cell(row.get(other)) for row in figures["ratios"].values()))
    console.print(ratios)


def cell(found: Figures | None) -> str:
    if found is None or not found["n"]:
        return ""
    return f"{found['median']:.2f} ({found['low']:.2f}–{found['high']:.2f})"


if __name__ == "__main__":
    started = time.monotonic()
    main()
    print(f"took {(time.monotonic() - started) / 60:.0f} minutes")
