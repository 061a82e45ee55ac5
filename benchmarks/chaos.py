"""Kills and stops processes of training runs at random, and compares what the runs end with.

    .venv/bin/python benchmarks/chaos.py [--kills 50] [--per-run 8] [--minutes 45] [--seed 0]
                                         [--epochs 100] [--json FILE [--more]]

Runs of two models of the zoo take turns, each as `heterps train` in processes of its own: workers,
parameter servers, and the coordinator, which is followed by `heterps resume`. Every run has to end
with the losses, weights and rows of one that was not disturbed, to the bit; the exit code is 1 if
one does not. After so many minutes no more processes are killed and the last run is left to end;
with --more a later call goes on from what FILE holds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heterps.events import read_events
from heterps.job.spec import Job
from heterps.runtime.run_folder import RunFolder
from heterps.testing.live_runs import LiveRun
from heterps.testing.runs import Outcome, outcome, run, small_job

MODELS = {"two_emb": (2, 1), "ctrdnn": (1, 2)}
SERVERS = 2
SNAPSHOT_EVERY = 12  # batches: few enough that most kills come after one
TRAINING_S, START_S = 4.0, 0.5  # that a kill comes after the first sign of it, at the most
PATIENCE_S = 90.0  # for that sign
COORDINATOR = "coordinator"


@dataclass
class Kill:
    """``detect_s``, ``again_s``: until the coordinator said so, and until batches were done again;
    those of a coordinator count from the moment that it is resumed. None where another failure
    came in between."""

    model: str
    role: str
    signal: str
    at: float
    detect_s: float | None = None
    again_s: float | None = None
    steps_lost: int | None = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--per-run", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float, default=100.0, help="of 28 batches each")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--more", action="store_true", help="go on from what --json FILE holds")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with this
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        until = time.monotonic() + options.minutes * 60
        chaos = Chaos(Path(folder), options.seed, until, options.epochs)
        if options.more and options.json.exists():
            chaos.go_on_from(json.loads(options.json.read_text()))
        for _ in chaos.go(options.kills, options.per_run):
            if options.json:
                keep(chaos, options.seed, options.json)
    print_table(chaos.kills)
    same = sum(chaos.same)
    runs = f"{len(chaos.same)} runs, {same} of which ended as they had to"
    print(f"\n{len(chaos.kills)} kills in {runs}")
    return 0 if all(chaos.same) else 1


def keep(chaos: Chaos, seed: int, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"seed": seed, "identical": chaos.same}
    document["kills"] = [asdict(kill) for kill in chaos.kills]
    path.write_text(json.dumps(document, indent=1))


class Chaos:
    """``kills`` and, for each run, whether it ended as it had to."""

    def __init__(self, folder: Path, seed: int, until: float, epochs: float) -> None:
        self.kills: list[Kill] = []
        self.same: list[bool] = []
        self._folder = folder
        self._draw = random.Random(seed)
        self._until = until
        self._epochs = epochs

    def go_on_from(self, document: dict[str, Any]) -> None:
        """What was found before counts, and what comes is drawn anew."""
        self.kills = [Kill(**kill) for kill in document["kills"]]
        self.same = document["identical"]
        self._draw.seed(f"{document['seed']} {len(self.same)}")

    def go(self, kills: int, per_run: int) -> Iterator[None]:
        """Stops after each run."""
        jobs = {model: make_job(self._folder, model, self._epochs) for model in MODELS}
        expected: dict[str, Outcome] = {}
        while len(self.kills) < kills and time.monotonic() < self._until:
            number = len(self.same)
            model = list(MODELS)[number % len(MODELS)]
            if model not in expected:
                expected[model] = run(jobs[model], self._folder / f"undisturbed-{model}")[1]
            wanted = min(per_run, kills - len(self.kills))
            found = self._disturbed(model, jobs[model], self._folder / f"run-{number}", wanted)
            self.same.append(found is not None and found.equals(expected[model]))
            said = "the same" if self.same[-1] else "NOT THE SAME"
            print(f"run {number}, {model}: {len(self.kills)} kills so far, {said}", flush=True)
            yield

    def _disturbed(self, model: str, job: Job, folder: Path, kills: int) -> Outcome | None:
        folder.mkdir()
        live, done = LiveRun(job, folder), []
        try:
            while len(done) < kills and time.monotonic() < self._until:
                if not self._wait(live, done[-1].at if done else 0.0):
                    break
                kill = self._kill(live, model)
                if kill is not None:
                    done.append(kill)
            code, said = live.ended()
        finally:
            live.close()
        measure(done, list(read_events(live.path / "events.jsonl")))
        self.kills += done
        if code != 0:
            print(said, file=sys.stderr)
            return None
        return outcome(RunFolder.open(live.path))

    def _wait(self, live: LiveRun, since: float) -> bool:
        """For a random moment: of training again since the last kill, or now and then of the start
        of its processes."""
        trains, late = self._draw.random() < 0.8, time.monotonic() + PATIENCE_S
        while trains and live.coordinator.poll() is None and not _trains(live.path, since):
            if time.monotonic() > late:
                break
            time.sleep(0.1)
        time.sleep(self._draw.random() * (TRAINING_S if trains else START_S))
        return live.coordinator.poll() is None

    def _kill(self, live: LiveRun, model: str) -> Kill | None:
        role = self._draw.choices([COORDINATOR, "server", "worker"], [1, 2, 2])[0]
        number = self._draw.choices([signal.SIGKILL, signal.SIGSTOP], [3, 1])[0]
        if role == COORDINATOR:
            if not (live.path / "events.jsonl").exists():
                return None
            live.kill()
            kill = Kill(model, role, "SIGKILL", time.time())
            live.resume()
            return kill
        prefix = "server-" if role == "server" else "stage-"
        found = sorted(name for name in live.processes() if name.startswith(prefix))
        if not found:
            return None
        pid = live.processes().get(self._draw.choice(found))
        with suppress(ProcessLookupError, TypeError):
            os.kill(pid, number)  # type: ignore[arg-type]
            return Kill(model, role, signal.Signals(number).name, time.time())
        return None


def make_job(folder: Path, model: str, epochs: float) -> Job:
    changes = {
        "workload__epochs": epochs,
        "snapshot__every": SNAPSHOT_EVERY,
        "servers__count": SERVERS,
    }
    # Failures in a row may well come before the first snapshot.
    changes |= {"optimizer__name": "adam", "recovery__retries": 100}
    return small_job(folder, model, MODELS[model], **changes)


def measure(kills: Sequence[Kill], events: Sequence[dict[str, Any]]) -> None:
    """What the events of a run say about each kill."""
    for number, kill in enumerate(kills):
        after = kills[number + 1].at if number + 1 < len(kills) else math.inf
        mine = [event for event in events if kill.at <= event["time"] < after]
        # A worker tells of its progress every second: what it has not told is not counted as lost.
        told = _since(events, "ready", kill.at)
        noticed = _first(mine, "failure", "resumed", "started")
        if noticed is None:
            continue
        later = [event for event in mine if event["time"] >= noticed["time"]]
        if kill.role != COORDINATOR:
            kill.detect_s = noticed.get("noticed", noticed["time"]) - kill.at
        ready = _first(later, "ready")
        if ready is None:
            continue
        reached = max([noticed["step"], *(event["step"] for event in told if "step" in event)])
        kill.steps_lost = max(0, reached - ready["step"])
        # Reports begin before the first batch is through.
        reports = [event for event in later[later.index(ready) :] if event["kind"] == "progress"]
        trained = next((event for event in reports if event["step"] > ready["step"]), None)
        kill.again_s = None if trained is None else trained["time"] - kill.at


def _trains(run: Path, since: float) -> bool:
    """Whether its processes were ready after that time and it has got on: reports begin before."""
    path = run / "events.jsonl"
    events = [e for e in read_events(path) if e["time"] > since] if path.exists() else []
    told = _since(events, "ready", math.inf)
    ready = bool(told) and told[0]["kind"] == "ready"
    return ready and any(e["kind"] == "progress" and e["step"] > told[0]["step"] for e in told)


def _since(events: Sequence[dict[str, Any]], kind: str, until: float) -> list[dict[str, Any]]:
    """From the last event of a kind on, and before that time."""
    found: list[dict[str, Any]] = []
    for event in events:
        if event["time"] >= until:
            break
        found = [event] if event["kind"] == kind else [*found, event]
    return found


def _first(events: Sequence[dict[str, Any]], *kinds: str) -> dict[str, Any] | None:
    return next((event for event in events if event["kind"] in kinds), None)


def print_table(kills: Sequence[Kill]) -> None:
    print("\n| who | how | kills | detected in s | training again in s | steps lost |")
    print("|---|---|---|---|---|---|")
    for role, how in sorted({(kill.role, kill.signal) for kill in kills}):
        own = [kill for kill in kills if (kill.role, kill.signal) == (role, how)]
        columns = [list(_known(own, name)) for name in ("detect_s", "again_s", "steps_lost")]
        cells = " | ".join(_shown(values) for values in columns)
        print(f"| {role} | {how} | {len(own)} | {cells} |")
    print("\nmedian (largest)")


def _known(kills: Sequence[Kill], name: str) -> Iterator[float]:
    yield from (value for kill in kills if (value := getattr(kill, name)) is not None)


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({max(values):.1f})" if values else "-"


if __name__ == "__main__":
    sys.exit(main())
