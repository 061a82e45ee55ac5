"""Reports of runs as tables and lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from heterps.cli.tables import Table, duration, money, rate
from heterps.planning.measured import StageCheck
from heterps.report.run_report import RunReport

_UNKNOWN = "-"
_DISTURBED = 0.1


def title(found: RunReport) -> str:
    own = found.summary
    return f"{own.name}: {own.model}, {own.state}"


def stage_table(found: RunReport) -> Table:
    """Seconds are those of a batch."""
    titles = ("#", "layers", "type", "units", "what", "predicted", "measured", "error")
    rows = []
    for number, (names, stage) in enumerate(zip(found.layers, found.stages, strict=True)):
        place = [str(number), names, stage.type, str(stage.units)]
        for row in _rows(stage, found.period_s):
            rows.append([*place, *row])
            place = [""] * len(place)
    return Table(titles, rows, left=("layers", "type", "what"))


def _rows(stage: StageCheck, period_s: float | None) -> list[list[str]]:
    said, seen, errors = stage.predicted, stage.measured, stage.errors
    compute_s = said.compute_s if said else None
    comm_s = said.comm_s if said else None
    own_s = (seen.compute_s, seen.comm_s) if seen else (None, None)
    busy = _shares(compute_s, period_s, seen.busy if seen else None)
    speed = [_rate(said.throughput if said else None), _rate(stage.capacity)]
    return [
        ["compute", *_times(compute_s, own_s[0]), _signed(errors["compute"])],
        ["communication", *_times(comm_s, own_s[1]), _signed(errors["comm"])],
        ["busy", *busy, ""],
        ["samples/s", *speed, _signed(errors["throughput"])],
    ]


def _times(*seconds: float | None) -> list[str]:
    return [_UNKNOWN if value is None else duration(value) for value in seconds]


def _shares(compute_s: float | None, period_s: float | None, busy: float | None) -> list[str]:
    share = compute_s / period_s if compute_s is not None and period_s else None
    return [_UNKNOWN if value is None else f"{value:.0%}" for value in (share, busy)]


def summary_lines(found: RunReport) -> list[tuple[str, str]]:
    lines = [("bound", found.bound.text if found.bound else "nothing was measured yet")]
    lines += [("measured", _measured(found)), ("formula", _predicted(found, "formula"))]
    lines += [("simulated", _predicted(found, "simulator"))]
    lines += [(f"stage {n}", _parts(stage)) for n, stage in enumerate(found.stages)]
    lines += [("quality", _quality(found)), ("cost", _cost(found)), ("safety", _safety(found))]
    lines += _disturbed(found)
    lines += [("trouble", line) for line in found.story.troubles]
    if found.story.oversubscribed:
        said = "units and servers needed more than 0.8 of the cores: no evidence on predictions"
        lines.append(("oversubscribed", said))
    return lines


def _disturbed(found: RunReport) -> list[tuple[str, str]]:
    """Where others on the machine cost a worker more than a tenth of its work's time."""
    seen = [stage.measured.calm for stage in found.stages if stage.measured is not None]
    lost = 1 - min(seen, default=1.0)
    if lost <= _DISTURBED:
        return []
    said = f"others on this machine took up to {lost:.0%} of the time of a worker's work"
    return [("disturbed", said)]


def comparison(found: Sequence[RunReport]) -> Table:
    titles = (
        "run", "state", "units", "samples/s", "formula", "simulated", "$/million", "result", "bound"
    )  # fmt: skip
    rows = [
        [
            entry.summary.name,
            entry.summary.state,
            " | ".join(f"{stage.units} {stage.type}" for stage in entry.stages),
            _rate(entry.samples_per_s),
            _signed(entry.errors["formula"]),
            _signed(entry.errors["simulator"]),
            _UNKNOWN if entry.dollars_per_million is None else money(entry.dollars_per_million),
            _metric(entry),
            entry.bound.by if entry.bound else _UNKNOWN,
        ]
        for entry in found
    ]
    return Table(titles, rows, left=("run", "state", "units", "result", "bound"))


def _measured(found: RunReport) -> str:
    if found.samples_per_s is None:
        return _UNKNOWN
    text = f"{rate(found.samples_per_s)} samples/s once warm"
    if found.floor is None:
        return text
    kept = "kept" if found.samples_per_s >= found.floor else "missed"
    return f"{text}; the floor of {rate(found.floor)} is {kept}"


def _predicted(found: RunReport, by: str) -> str:
    value = found.predicted if by == "formula" else found.simulated
    if value is None:
        return "nothing is predicted without a profile"
    off = found.errors[by]
    return f"{rate(value)} samples/s" + ("" if off is None else f", error {_signed(off)}")


def _parts(stage: StageCheck) -> str:
    """Where the time of a batch went in one of its replicas."""
    seen = stage.measured
    if seen is None:
        return "nothing was measured yet"
    work = ("forward", "backward", "prepare", "send", "loop", "commit")
    own = [(name, getattr(seen, f"{name}_s")) for name in work]
    waits = [(f"waiting for {cause}", seconds) for cause, seconds in seen.waiting.items()]
    shares = [f"{name} {seconds / seen.batch_s:.0%}" for name, seconds in own]
    shares += [f"{name} {s / seen.batch_s:.0%}" for name, s in waits if s / seen.batch_s >= 0.01]
    beside = f"pull {duration(seen.pull_s)}, push {duration(seen.push_s)}"
    link = f", link {duration(seen.link_s)}" if seen.link_s else ""
    return f"{duration(seen.batch_s)} a batch: {', '.join(shares)}; beside it {beside}{link}"


def _quality(found: RunReport) -> str:
    story = found.story
    if story.last_loss is None:
        return _UNKNOWN
    text = f"loss {story.first_loss:.4f}, then {story.last_loss:.4f}"
    return f"{text}; {_metric(found)}" if found.summary.metric else text


def _metric(found: RunReport) -> str:
    own = found.summary
    if own.metric is None:
        return _UNKNOWN
    name = {"auc": "AUC", "logloss": "log-loss"}.get(own.metric, own.metric)
    return f"{name} {own.value:.4f}{' progressive' if own.progressive else ''}"


def _cost(found: RunReport) -> str:
    own = found.summary
    text = _UNKNOWN if own.dollars is None else f"{money(own.dollars)} so far"
    if own.dollars is not None and own.state == "done":
        text = f"{money(own.dollars)} in all"
    if found.dollars_per_million is not None:
        text += f"; {money(found.dollars_per_million)} per million samples at the measured speed"
    if found.predicted_dollars_per_million is not None:
        text += f", {money(found.predicted_dollars_per_million)} planned"
    return text


def _safety(found: RunReport) -> str:
    story = found.story
    restarts = max(0, story.starts - 1)
    last = "" if story.last_snapshot is None else f", the last at step {story.last_snapshot:,}"
    stall = f", {duration(story.stall_s)} of standing still for them" if story.snapshots else ""
    plans = f", {story.replans} other plans" if story.replans else ""
    return f"{story.snapshots} snapshots{last}{stall}; {restarts} restarts{plans}"


def _signed(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{100 * share:+.0f} %"


def _rate(samples_per_s: float | None) -> str:
    return _UNKNOWN if samples_per_s is None else rate(samples_per_s)
