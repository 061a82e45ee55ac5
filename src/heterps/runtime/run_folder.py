"""The folder of a run: all that went in, what happened, and what came out.

```text
job.yaml       the job with every setting, reading from here; code/ holds the model's file
plan.json      profile.json  versions.json
events.jsonl   what happened, line by line
metrics.json   the result, once there is one
model/  best/  dense.safetensors, tables/ (a snapshot of the parameter servers), manifest.json
logs/          what each process said
key  lock      the run's secret; who coordinates it
identity.json  the run's id
```
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Self

import yaml

from heterps.errors import InputError
from heterps.events import EventLog, finite
from heterps.job.load import load_job, read_document
from heterps.job.spec import Job
from heterps.runtime import saved_model
from heterps.runtime.identity import IDENTITY, Identity, id_at
from heterps.runtime.snapshot import SNAPSHOTS, Snapshots, snapshots_folder
from heterps.wire.keys import KEY_FILE, create_key, read_key

JOB, PLAN, PROFILE, VERSIONS = "job.yaml", "plan.json", "profile.json", "versions.json"
EVENTS, METRICS, LOCK, LOGS, CODE = "events.jsonl", "metrics.json", "lock", "logs", "code"
MODEL, BEST, GENERATION = "model", "best", "generation"
# What tells a run from someone's own folder with a job in it. A job.yaml alone, as on another
# machine, names the folder of its snapshots.
_MARKS = (IDENTITY, EVENTS, VERSIONS, SNAPSHOTS)
_PACKAGES = ("heterps", "torch", "numpy", "pyarrow", "pyzmq", "msgpack", "safetensors")


class RunFolder:
    """``create`` makes one and locks it, ``open`` is for reading what is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._claimed: Snapshots | None = None  # by this very start

    @classmethod
    def create(
        cls,
        path: Path | str | None,
        job: Job,
        plan: Mapping[str, Any] | None = None,
        *,
        profile: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> RunFolder:
        """A new folder, by default ``runs/<model>-<time>``; one that holds anything is refused. The
        files of a failed attempt are left for the person to look at.
        """
        run = cls(_new_path(job) if path is None else Path(path))
        run._make()
        identity = Identity.new()
        run.claim(Snapshots.of(run.path, job, identity.id))
        profile = profile or job.profile
        documents = {PLAN: plan, PROFILE: profile, VERSIONS: versions or installed_versions()}
        try:
            run._lock = _locked(run.path)
            identity.write(run.path)
            run._fill(job, {name: held for name, held in documents.items() if held is not None})
        except BaseException:
            run.__exit__()
            raise
        return run

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Raises InputError for what is no run folder."""
        run = cls(Path(path))
        if not (run.path / JOB).is_file():
            raise InputError(str(path), f"is no run folder: it holds no {JOB}")
        if not (any((run.path / mark).exists() for mark in _MARKS) or run.job.snapshot.name):
            problem = f"holds a {JOB} that no run has written"
            raise InputError(
                str(path), f"is no run folder: it {problem}; `heterps train` makes one"
            )
        return run

    @property
    def job(self) -> Job:
        return load_job(self.path / JOB)

    @property
    def plan(self) -> dict[str, Any]:
        return read_document(self.path / PLAN)

    @property
    def key(self) -> bytes:
        return read_key(self.path)

    @property
    def logs(self) -> Path:
        return self.path / LOGS

    @property
    def model(self) -> Path:
        return self.path / MODEL

    @property
    def best(self) -> Path:
        return self.path / BEST

    def events(self) -> EventLog:
        """To append to."""
        return EventLog(self.path / EVENTS)

    def next_generation(self) -> int:
        """Counts the starts of the run's processes: a number that no earlier one had."""
        path = self.path / GENERATION
        number = int(path.read_text()) + 1 if path.exists() else 0
        partial = path.with_suffix(".partial")
        partial.write_text(f"{number}\n")
        partial.replace(path)
        return number

    def lock(self) -> None:
        """Claim the run for this process. Raises InputError while another one coordinates it. A
        folder that holds a job alone, as on another machine, gets what it lacks."""
        if self._lock is None:
            self._lock = _locked(self.path)
            self.logs.mkdir(exist_ok=True)
            if not (self.path / KEY_FILE).exists():
                create_key(self.path)

    def claim(self, snapshots: Snapshots, *, again: bool = False) -> None:
        """Their place is the run's alone. After a ``with`` block that has published none there it
        is anyone's again, unless it was the run's before. Raises InputError as they do."""
        if snapshots.claim(again=again):
            self._claimed = snapshots

    def identify(self) -> None:
        """A folder that does not say who it is, as on another machine, learns it from the run's
        snapshots."""
        if Identity.of(self.path) is None:
            there = snapshots_folder(self.path, self.job)
            found = None if there == self.path / SNAPSHOTS else id_at(there)
            (Identity(found) if found else Identity.new()).write(self.path)

    def close(self) -> None:
        """Give the lock back; the end of the process does so too."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever goes on with the run may have its place only after this has left it."""
        try:
            if self._claimed is not None:
                self._claimed.withdraw()
        finally:
            self.close()

    @contextmanager
    def saving(self, name: str, about: Mapping[str, Any] | None = None) -> Iterator[Path]:
        """A folder for ``dense.safetensors`` and ``tables`` that becomes ``model`` or ``best`` at
        the end of the block, when they are whole."""
        with saved_model.saving(self.path / name, about) as folder:
            yield folder

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """Write the result."""
        self.write_json(METRICS, metrics)

    def reopen(self) -> None:
        """A run that goes on has no result yet."""
        (self.path / METRICS).unlink(missing_ok=True)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Whole or not at all."""
        text = json.dumps(finite(dict(document)), indent=2, allow_nan=False, default=str)
        partial = self.path / f".{name}.partial"
        try:
            partial.write_text(f"{text}\n", encoding="utf-8")
            partial.replace(self.path / name)
        except OSError as error:
            problem = f"cannot be written ({error.strerror})"
            raise InputError(str(self.path / name), problem) from None

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held = next(self.path.iterdir(), None)
        except OSError as error:
            raise InputError(str(self.path), f"cannot be made ({error.strerror})") from None
        if held is not None:
            problem = f"holds '{held.name}' already: a run needs a new or empty folder"
            raise InputError(str(self.path), problem)

    def _fill(self, job: Job, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self.logs.mkdir()
        create_key(self.path)
        for name, held in documents.items():
            self.write_json(name, held)
        self.write_job(job)

    def write_job(self, job: Job) -> None:
        """The job as it now is; plan and profile stand in files of their own."""
        document = job.document()
        for part, name in (("plan", PLAN), ("profile", PROFILE)):
            document.pop(part, None)
            if (self.path / name).exists():
                document[part] = name
        if job.snapshot.to is not None:  # so that a copy of this folder finds them
            document["snapshot"]["name"] = job.snapshot.name or self.path.absolute().name
        file = document.get("model", {}).get("file")
        if isinstance(file, str):
            document["model"]["file"] = self._copied(Path(file))
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=100)
        partial = self.path / f".{JOB}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path / JOB)

    def _copied(self, file: Path) -> str:
        """The model's file, which may change later."""
        code = self.path / CODE
        code.mkdir(exist_ok=True)
        try:
            if file.parent.absolute() != code.absolute():
                shutil.copy(file, code)
        except OSError as error:
            raise InputError("model.file", f"{file} cannot be read ({error.strerror})") from None
        return f"{CODE}/{file.name}"


def installed_versions() -> dict[str, str]:
    """Of all that a result may depend on."""
    packages = {name: version(name) for name in _PACKAGES}
    return {**packages, "python": platform.python_version(), "platform": platform.platform()}


def _new_path(job: Job) -> Path:
    model = job.model or {}
    name = model.get("zoo") or Path(str(model.get("file", "run"))).stem
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1, 1000):
        path = Path("runs", stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            return path
    raise InputError("runs", f"holds {stem} a thousand times already")


def _locked(folder: Path) -> IO[bytes]:
    file = (folder / LOCK).open("ab")
    for pause_s in (0.05, 0.2, 0.0):  # whoever looks if it is locked holds it for a moment
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        time.sleep(pause_s)
    file.close()
    raise InputError(str(folder), "is coordinated by another process already")
