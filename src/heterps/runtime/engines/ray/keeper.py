"""The actor that keeps one process of a run on its node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, NamedTuple

from heterps.processes import Child, is_stopped, stop_all, wants_to_run
from heterps.runtime.engines.base import LOGS
from heterps.runtime.engines.local import read_file
from heterps.runtime.engines.ray.handover import Invitation, Inviter
from heterps.wire.segments import remove_segments_of

PREFIX = "heterps-run-"
LOCK = ".heterps-keeper"  # shows that a folder is a keeper's: people may call theirs alike
_OWN = re.compile(rf"{PREFIX}[0-9a-f]{{12}}")
_LOOK_EVERY_S = 0.5  # at what was written; an end is seen at once
_MOST_OUTPUT = 1 << 20


class FolderError(Exception):
    """The folder for a run cannot be made on this node. It comes to the coordinator by Ray."""


class Seen(NamedTuple):
    """``output`` is what was written since the last look; a code comes with the last of it."""

    code: int | None
    stopped: bool
    wants_to_run: bool
    output: bytes


class Keeper:
    """Its methods are called one after the other. The process ends with the actor, however that
    ends; the folder goes with the last keeper that uses it, or with a later one on its node."""

    def __init__(self, name: str, folder: str, host: str) -> None:
        self._name = name
        self._folder = Path(folder)
        self._host = host
        self._inviter: Inviter | None = None
        self._child: Child | None = None
        self._log_start = 0
        self._ending = False
        self._lock: IO[bytes] | None = None

    def invite(self) -> tuple[str, Invitation]:
        """The version of this package here, and how the secret can be handed over. The folder is
        there from now on."""
        self.claim()
        self._inviter = Inviter(self._host)
        return version("heterps"), self._inviter.invitation

    def claim(self) -> None:
        """Makes the folder, or joins those that use it; raises FolderError."""
        try:
            self._lock = _claimed(self._folder)
            (self._folder / LOGS).mkdir(exist_ok=True)
        except OSError as error:
            where = f"ray.folder '{self._folder.parent}' cannot be used on {self._host}"
            raise FolderError(f"{where}: {error.strerror or error}") from None

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        secret_expected: bool,
    ) -> None:
        secret = self._inviter.secret() if secret_expected and self._inviter else b""
        if not self._ending:
            log = self._folder / LOGS / f"{self._name}.log"
            self._log_start = log.stat().st_size if log.exists() else 0
            self._child = Child(module, arguments, log, variables, secret)

    def look(self, offset: int, wait_s: float) -> Seen:
        """As soon as there is something new, or after so long. ``offset`` is how much of the output
        is known."""
        deadline = time.monotonic() + wait_s
        while True:
            code = self._poll()
            output = self._output(offset)
            if code is not None or output or time.monotonic() >= deadline:
                break
            self._await_news(min(_LOOK_EVERY_S, deadline - time.monotonic()))
        if len(output) == _MOST_OUTPUT:
            code = None  # there may be more to read
        pid = self._child.pid if self._child is not None and code is None else None
        held = pid is not None and is_stopped(pid)
        busy = pid is not None and wants_to_run(pid)
        return Seen(code, held, busy, output)

    def read(self, name: str) -> bytes | None:
        return read_file(self._folder / name)

    def stop(self, grace_s: float) -> None:
        self._ending = True
        if self._child is not None:
            stop_all([self._child], grace_s)

    def leave(self) -> None:
        """Once the process has ended and all is read: nobody needs this actor any more."""
        if self._lock is not None:
            self._lock.close()
            remove_unused(self._folder)

    def _await_news(self, timeout_s: float) -> None:
        if self._child is None:
            time.sleep(max(0.0, timeout_s))
        else:
            self._child.wait(timeout_s)

    def _poll(self) -> int | None:
        if self._child is None:
            return -signal.SIGTERM if self._ending else None
        code = self._child.poll()
        if code is not None:
            remove_segments_of(self._child.pid)
        return code

    def _output(self, offset: int) -> bytes:
        if self._child is None:
            return b""
        try:
            with self._child.log.open("rb") as file:
                file.seek(self._log_start + offset)
                return file.read(_MOST_OUTPUT)
        except OSError:
            return b""


def _claimed(folder: Path) -> IO[bytes]:
    """The folder is in use as long as this is open. Those that nobody uses any more are removed:
    their keepers were killed."""
    for other in folder.parent.glob(f"{PREFIX}*"):
        if other != folder and _OWN.fullmatch(other.name):
            remove_unused(other)
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = (folder / LOCK).open("ab")
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(lock, folder):
            return lock
        lock.close()


def _is_at(lock: IO[bytes], folder: Path) -> bool:
    """Whether it is still the folder's, which may have been removed and made anew."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), (folder / LOCK).stat())
    except OSError:
        return False


def remove_unused(folder: Path) -> None:
    """Unless a keeper has claimed it, or none ever had, or it is another user's. The lock goes
    last: if this is killed, the next one goes on with it."""
    if folder.is_symlink():
        return
    with contextlib.suppress(OSError), (folder / LOCK).open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(lock, folder):
            return
        for held in folder.iterdir():
            if held.is_dir() and not held.is_symlink():
                shutil.rmtree(held, ignore_errors=True)
            elif held.name != LOCK:
                held.unlink()
        (folder / LOCK).unlink()
        folder.rmdir()
