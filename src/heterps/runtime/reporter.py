"""What a generation tells about itself while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from heterps.events import EventLog
from heterps.runtime.findings import Findings
from heterps.runtime.progress import Progress, Status

_EVENT_EVERY_S = 1.0

Report = Callable[[Status], None]
Notice = Callable[[str], None]  # a line that the person should see


class Reporter:
    """To whoever shows it, to the events of the run, and to the person."""

    def __init__(
        self,
        progress: Progress,
        findings: Findings,
        events: EventLog,
        report: Report,
        notice: Notice,
    ) -> None:
        self._progress = progress
        self._findings = findings
        self._events = events
        self._report = report
        self._notice = notice
        self._told_at = 0.0

    def say(self, *, force: bool = False) -> None:
        """How far it is, now and then."""
        now = time.monotonic()
        if not force and now < self._told_at + _EVENT_EVERY_S:
            return
        self._told_at = now
        status = self._progress.status()
        first, losses = self._progress.take_losses()
        self._findings.hear(first, losses)
        stages = self._progress.figures()
        self._events.write("progress", **asdict(status), first=first, losses=losses, stages=stages)
        self._report(status)
        self._findings.look()

    def snapshot(self, about: Mapping[str, Any]) -> None:
        """What came of one."""
        if "error" not in about:
            self._events.write("snapshot", **about)
            return
        self._events.write("snapshot_failed", **about)
        self._notice(f"no snapshot was written, training goes on: {about['error']}")
