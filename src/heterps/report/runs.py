"""Run folders at a glance: read from their files alone, while a run goes on or long after."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from heterps.errors import InputError
from heterps.events import read_events

JOB, METRICS, EVENTS, _LOCK = "job.yaml", "metrics.json", "events.jsonl", "lock"
_VERSIONS = "versions.json"
_METRIC_NAMES = ("auc", "recall", "logloss", "loss")  # the first that a run has is shown


@dataclass(frozen=True)
class RunSummary:
    """``state`` is ``running``, ``done``, ``stopped`` by Ctrl-C, ``failed``, or ``lost`` for a run
    that ended without a word. ``metric`` is that of the last validation, or ``progressive``: of
    samples before they were trained on. Figures that are not known are None.
    """

    name: str
    path: str
    state: str
    model: str
    started: float | None
    steps: int | None
    samples_per_s: float | None
    metric: str | None
    value: float | None
    progressive: bool
    dollars: float | None

    def as_document(self) -> dict[str, Any]:
        return asdict(self)


def is_run(folder: Path) -> bool:
    """Rather than a folder of someone's own with a job in it."""
    return any((folder / name).is_file() for name in (_VERSIONS, EVENTS))


def find_runs(folder: Path | str) -> list[RunSummary]:
    """The runs in a folder, the oldest first; the folder itself may be one. Raises InputError for a
    folder that cannot be read.
    """
    folder = Path(folder)
    try:
        entries = [folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())]
    except OSError as error:
        raise InputError(str(folder), f"cannot be read ({error.strerror})") from None
    found = [summarise(entry) for entry in entries if (entry / _VERSIONS).is_file()]
    return sorted(found, key=lambda run: (run.started or 0.0, run.name))


def summarise(path: Path) -> RunSummary:
    """What the files of a run folder tell; anything that cannot be read is left out."""
    story = _Story()
    for event in read_events(path / EVENTS):
        story.take(event)
    figures = story.figures | read_json(path / METRICS)
    metric = next((m for m in _METRIC_NAMES if number(story.metrics.get(m)) is not None), None)
    return RunSummary(
        name=path.resolve().name,
        path=str(path),
        state="running" if _is_locked(path / _LOCK) else story.state,
        model=_model(path / JOB),
        started=story.started,
        steps=number(figures.get("steps")),
        samples_per_s=number(figures.get("samples_per_s")),
        metric=metric,
        value=None if metric is None else float(story.metrics[metric]),
        progressive=not story.validated,
        dollars=number(figures.get("dollars")),
    )


class _Story:
    """What the events of a run tell so far."""

    _states: ClassVar = {
        "ended": "done",
        "interrupted": "stopped",
        "failed": "failed",
        "resumed": "lost",  # until it says something else
    }

    def __init__(self) -> None:
        self.started: float | None = None
        self.state = "lost"
        self.figures: dict[str, Any] = {}
        self.metrics: Mapping[str, Any] = {}
        self.validated = False

    def take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("kind")
        if self.started is None:
            self.started = number(event.get("time"))
        self.state = self._states.get(str(kind), self.state)
        if kind == "progress":
            self.figures = {"samples_per_s": event.get("samples_per_s")}
            self.figures |= {"steps": event.get("step"), "dollars": event.get("dollars")}
        if kind == "validated" or (kind == "progress" and not self.validated):
            held = event.get("metrics")
            self.metrics = held if isinstance(held, Mapping) else {}
            self.validated = kind == "validated"


def _model(path: Path) -> str:
    try:
        job = yaml.safe_load(path.read_text(encoding="utf-8"))
        model = job.get("model") or {}
        return str(model.get("zoo") or Path(str(model.get("file", "?"))).stem)
    except (OSError, ValueError, yaml.YAMLError, AttributeError):
        return "?"


def read_json(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def number(value: Any) -> Any:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return value if usable else None


def _is_locked(path: Path) -> bool:
    """Whether a coordinator is at work, on this machine."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
