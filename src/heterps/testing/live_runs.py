"""Runs that ``heterps`` coordinates in a process of its own, watched from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import yaml

from heterps.events import read_events
from heterps.job.spec import Job
from heterps.processes import is_stopped
from heterps.testing.leftovers import await_no_processes, processes_of

PATIENCE_S = 300.0
_LOOK_EVERY_S = 0.05


class LiveRun:
    """``heterps train`` of a job, and ``heterps resume`` after it was ended."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.path = folder / "run"
        file = folder / "job.yaml"
        file.write_text(yaml.safe_dump(job.document()))
        self._seen = 0
        self._start("train", str(file), "--out", str(self.path))

    def resume(self, *options: str) -> None:
        """Once nothing of the one before is left but what is held, which this one ends."""
        held = [pid for pid in processes_of(self.path) if is_stopped(pid)]
        assert await_no_processes(self.path, but=held) == []
        self._seen = len(self._events())
        self._start("resume", str(self.path), *options)

    def until(self, kind: str, count: int = 1) -> None:
        """So many events of a kind since the last start; fails when the run ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while sum(event == kind for event in self._events()[self._seen :]) < count:
            if self.coordinator.poll() is not None:
                raise AssertionError(f"it has ended: {self.ended()[1]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no sign of '{kind}' in {PATIENCE_S:g} s")
            time.sleep(_LOOK_EVERY_S)

    def until_next(self, kind: str) -> None:
        """An event of a kind that is not there yet, or the end of the run."""
        before, deadline = self._events().count(kind), time.monotonic() + PATIENCE_S
        while self.coordinator.poll() is None and self._events().count(kind) == before:
            if time.monotonic() > deadline:
                raise AssertionError(f"no sign of '{kind}' in {PATIENCE_S:g} s")
            time.sleep(_LOOK_EVERY_S)

    def ended(self) -> tuple[int, str]:
        """Its exit code and what it said, once it has ended."""
        said, _ = self.coordinator.communicate(timeout=PATIENCE_S)
        return self.coordinator.returncode, said

    def processes(self) -> dict[str, int]:
        """Process ids of those that live now by name: workers, servers."""
        found = {}
        for pid in processes_of(self.path):
            with suppress(OSError):
                name = _name_of(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
                if name is not None:
                    found[name] = pid
        return found

    def kill(self) -> None:
        """The coordinator."""
        self.coordinator.kill()
        self.ended()

    def close(self) -> None:
        """Nothing is left."""
        if self.coordinator.poll() is None:
            self.kill()
        for pid in await_no_processes(self.path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _events(self) -> list[str]:
        return [event["kind"] for event in read_events(self.path / "events.jsonl")]

    def _start(self, *arguments: str) -> None:
        self.coordinator = subprocess.Popen(
            [sys.executable, "-m", "heterps", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _name_of(command: list[bytes]) -> str | None:
    for option, prefix in ((b"--name", ""), (b"--shard", "server-")):
        if option in command:
            return prefix + command[command.index(option) + 1].decode()
    return None
