"""A training run as text: before, during, after."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Self, TextIO

from heterps.cli.describe import outline, print_lines, print_plan
from heterps.cli.tables import (
    Table,
    long_duration,
    money,
    percent,
    print_heading,
    print_table,
    rate,
)
from heterps.cli.terminal_bar import TerminalBar
from heterps.errors import InfeasibleError
from heterps.planning.provisioning import provision
from heterps.runtime.evaluation import planted_ceiling
from heterps.runtime.prepare import Setup
from heterps.runtime.progress import Status, Validation
from heterps.runtime.training import TrainResult

_LINE_EVERY_S = 5.0


def print_start(setup: Setup, title: str, folder: Path) -> None:
    _print_title(setup, title)
    _print_stages(setup)
    print_lines([*_about(setup), ("run", str(folder))])
    for warning in setup.warnings:
        print(f"warning: {warning}")
    print(flush=True)


def print_dry_run(setup: Setup, title: str) -> None:
    _print_title(setup, title)
    if setup.plan is not None and setup.problem is not None:
        print_plan(setup.problem, setup.plan)
        print()
    else:
        _print_stages(setup)
    print_lines([*_about(setup), ("price", _price(setup)), ("alone", _alone_line(setup))])
    for warning in setup.warnings:
        print(f"warning: {warning}")
    print("\nnothing was started: leave out --dry-run to train")


def dry_run_document(setup: Setup) -> dict[str, Any]:
    """For --json."""
    layout, predicted = setup.layout, setup.plan
    return {
        "plan": setup.plan_document(),
        "batches": layout.batches,
        "samples": layout.train.samples,
        "workers": len(layout.workers),
        "servers": setup.job.servers.count,
        "dollars_per_hour": setup.dollars_per_hour,
        "samples_per_s": predicted.throughput if predicted else None,
        "seconds": predicted.seconds if predicted else None,
        "dollars": predicted.cost if predicted else None,
        "single_type_dollars": single_type_dollars(setup),
        "warnings": setup.warnings,
    }


class LiveLine(TerminalBar):
    """One line that changes at a terminal; elsewhere a line every few seconds."""

    patience_s = 0.0

    def __init__(self, setup: Setup, *, quiet: bool = False) -> None:
        super().__init__("training")
        self._setup = setup
        self._quiet = quiet
        self._said_at = 0.0
        self._said_step = 0
        self._validated_at: int | None = None

    def __enter__(self) -> Self:
        return self

    def show(self, status: Status) -> None:  # type: ignore[override]
        at_terminal = sys.stderr.isatty()
        if at_terminal:
            super().show(status.step, status.steps, live_text(self._setup, status))
        elif not self._quiet:
            self._show_now_and_then(status)
        found = status.validation
        if found is not None and found.step != self._validated_at:
            self._validated_at = found.step
            if at_terminal or not self._quiet:
                self._say(validation_text(self._setup, found), sys.stdout)

    def note(self, line: str) -> None:
        """What the person should see even if nobody looks just now."""
        self._say(f"note: {line}", sys.stderr)

    def _show_now_and_then(self, status: Status) -> None:
        now, whole = time.monotonic(), status.step == status.steps
        if status.step != self._said_step and (whole or now >= self._said_at + _LINE_EVERY_S):
            self._said_at, self._said_step = now, status.step
            steps = f"step {status.step:,}/{status.steps:,}"
            print(f"{steps}  {live_text(self._setup, status)}", flush=True)

    def _say(self, line: str, out: TextIO) -> None:
        """A line that stays, above the one that changes."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=out, flush=True)


def validation_text(setup: Setup, found: Validation) -> str:
    """``validation at step 196  AUC 0.7606, log-loss 0.4766  the best so far``."""
    parts = [f"validation at step {found.step:,}", _metrics_text(setup, found.metrics)]
    return "  ".join([*parts, "the best so far"] if found.better else parts)


def live_text(setup: Setup, status: Status) -> str:
    """``12,340 samples/s  loss 0.512  AUC 0.701 (validation 0.698)  busy 81% | 64%  $0.00012``."""
    parts = []
    if not math.isnan(status.samples_per_s):
        parts.append(f"{rate(status.samples_per_s)} samples/s")
    if not math.isnan(status.loss):
        parts.append(f"loss {status.loss:.4f}")
    value = status.metrics.get(setup.metric, math.nan)
    if not math.isnan(value):
        last = status.validation
        validated = f" (validation {last.metrics[setup.metric]:.4f})" if last else ""
        parts.append(f"{_metric_name(setup.metric, setup)} {value:.4f}{validated}")
    parts.append("busy " + " | ".join(f"{share:.0%}" for share in status.busy))
    parts.append(f"${status.dollars:.5f}")
    return "  ".join(parts)


def print_result(setup: Setup, result: TrainResult) -> None:
    print()
    early = ", stopped early" if result.stopped_early else ""
    took = f"{long_duration(result.seconds)} with start and end{early}"
    lines = [("trained", f"{result.steps:,} batches, {result.samples:,} samples in {took}")]
    lines += [("speed", _speed(result)), *_quality(setup, result)]
    lines += [("bill", _bill(setup, result)), ("alone", _alone_line(setup))]
    path, shown = result.folder, quote(str(result.folder))
    lines += [
        ("run", f"{path} (model, events.jsonl, logs)"),
        ("next", f"heterps evaluate {shown}"),
        ("", f"heterps predict {shown} DATA --out predictions.parquet"),
        ("", "heterps runs"),
    ]
    print_lines(lines)


def single_type_dollars(setup: Setup) -> dict[str, float | None]:
    """What the same work would cost on each type alone; None where it cannot be done."""
    if setup.problem is None:
        return {}
    found: dict[str, float | None] = {}
    for name in setup.problem.types:
        try:
            alone = provision(setup.problem, [name] * setup.problem.layers)
            found[name] = alone.cost
        except InfeasibleError:
            found[name] = None
    return found


def _print_title(setup: Setup, title: str) -> None:
    model = setup.job.model or {}
    name = model.get("zoo") or f"{model.get('file')}:{model.get('function', 'build')}"
    print_heading(f"{title}: {name}, {len(setup.chain.layers)} layers")
    print()


def _print_stages(setup: Setup) -> None:
    names = setup.chain.names
    rows = []
    for number, stage in enumerate(setup.layout.stages):
        own = names[stage.first : stage.last + 1]
        layers = own[0] if len(own) == 1 else f"{own[0]}..{own[-1]} ({len(own)})"
        rows.append((str(number), layers, stage.type, str(stage.units)))
    print_table(Table(("#", "layers", "type", "units"), rows, left=("layers", "type")))
    print()


def _about(setup: Setup) -> list[tuple[str, str]]:
    layout, work = setup.layout, setup.job.workload
    samples = f"{layout.train.samples:,} samples"
    if setup.job.follows:
        samples += " so far, and what arrives later"
    if layout.validation is not None:
        samples += f", {layout.validation.samples:,} for validation"
    count = f"{layout.batches:,} of" if layout.batches else "of"
    batches = f"{count} {work.batch_size:,} in {work.micro_batches} micro-batches"
    own = setup.job.servers
    servers = f"{own.count} parameter server{'s' if own.count > 1 else ''}"
    return [
        ("data", samples),
        ("batches", f"{batches}, staleness {work.staleness}"),
        ("processes", f"{len(layout.workers)} workers, {servers}"),
    ]


def _price(setup: Setup) -> str:
    hourly = f"{money(setup.dollars_per_hour)} per hour"
    if setup.plan is None:
        return f"{hourly}; how long it takes is not known without a profile"
    return f"{money(setup.plan.cost)} for {long_duration(setup.plan.seconds)} at {hourly}"


def _speed(result: TrainResult) -> str:
    measured = f"{rate(result.samples_per_s)} samples/s measured"
    predicted = result.predicted_samples_per_s
    if predicted is None:
        return measured
    return f"{measured}, {rate(predicted)} predicted ({result.samples_per_s / predicted:.0%})"


def _quality(setup: Setup, result: TrainResult) -> list[tuple[str, str]]:
    what = "validation" if setup.layout.validation is not None else "progressive"
    lines = [(what, _metrics_text(setup, result.metrics))]
    # A ceiling is that of the whole validation set.
    part = setup.job.validation.max_batches is not None
    ceiling = {} if part else planted_ceiling(setup.job)
    if "auc" in ceiling and "auc" in result.metrics:
        gap = ceiling["auc"] - result.metrics["auc"]
        lines.append(("ceiling", f"AUC {ceiling['auc']:.4f} of the true model: {gap:.4f} to go"))
    return lines


def _bill(setup: Setup, result: TrainResult) -> str:
    hourly = money(setup.dollars_per_hour)
    bill = f"{money(result.dollars)} at {hourly} per hour"
    if setup.plan is None or setup.problem is None:
        return bill
    return f"{bill}; the plan ({outline(setup.problem, setup.plan)}): {money(setup.plan.cost)}"


def _alone_line(setup: Setup) -> str:
    found = single_type_dollars(setup)
    if not found or setup.plan is None:
        return "unknown without a profile"
    parts = []
    for name, dollars in found.items():
        if dollars is None:
            parts.append(f"{name}: no plan")
        else:
            more = dollars / setup.plan.cost - 1 if setup.plan.cost else 0.0
            word = "less" if more < 0 else "more"
            parts.append(f"{name}: {money(dollars)} ({percent(abs(more))} {word})")
    return ", ".join(parts)


def _metrics_text(setup: Setup, found: Mapping[str, float]) -> str:
    return ", ".join(
        f"{_metric_name(name, setup)} {value:.4f}"
        for name, value in found.items()
        if not math.isnan(value) and not (name == "loss" and value == found.get("logloss"))
    )


def _metric_name(metric: str, setup: Setup) -> str:
    names = {"auc": "AUC", "logloss": "log-loss", "recall": f"recall@{setup.job.validation.k}"}
    return names.get(metric, metric.replace("_", " "))
