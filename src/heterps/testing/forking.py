"""An engine whose processes are forked from one that has imported torch already.

They do what the local engine's do, but a run of ten of them starts in a second or two: importing
torch takes each process of the local engine seconds of a core.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import heterps.ps.server  # noqa: F401 - what the processes need, imported where they fork from
from heterps.errors import ProcessError
from heterps.parent import keep_secret
from heterps.processes import is_stopped, wants_to_run
from heterps.ps import processes as servers
from heterps.runtime import worker
from heterps.runtime.engines.base import GRACE_S, Engine, Handle, ProcessSpec
from heterps.runtime.engines.local import read_file
from heterps.wire.segments import remove_segments_of

MAINS: dict[str, Callable[[Sequence[str]], int]] = {
    "heterps.ps.server": servers.main,
    "heterps.runtime.worker": worker.main,
}
importlib.import_module("torch._dynamo")  # which the first optimizer asks for: 2 s of a core
_LAST_PATIENCE_S = 10.0


class ForkedHandle(Handle):
    def __init__(self, spec: ProcessSpec, process: BaseProcess, log: Path) -> None:
        super().__init__(spec)
        self._process = process
        self._log = log

    def read(self, name: str) -> bytes | None:
        return read_file(self._log.parents[1] / name)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        code = self._process.exitcode
        if code is not None:
            remove_segments_of(self.pid)
        return code

    def stop(self, grace_s: float = GRACE_S) -> int:
        self._process.terminate()
        return self.end_by(time.monotonic() + grace_s)

    def end_by(self, deadline: float) -> int:
        """Its exit code; it is killed when it lives on then."""
        self._process.join(max(0.0, deadline - time.monotonic()))
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(_LAST_PATIENCE_S)
        code = self.poll()
        if code is None:
            raise ProcessError(self.spec.name, "does not end, not even by SIGKILL")
        return code

    def stopped(self) -> bool:
        return is_stopped(self.pid)

    def wants_to_run(self) -> bool:
        return wants_to_run(self.pid)

    def ask_to_end(self) -> None:
        self._process.terminate()

    def last_words(self, lines: int = 3) -> str:
        said = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        return " / ".join([line for line in said if line][-lines:]) or "no reason given"


class ForkEngine(Engine):
    """``folder`` is the run's. For tests of what runs in the processes, not of how they start."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.handles: list[ForkedHandle] = []

    def start(self, spec: ProcessSpec) -> ForkedHandle:
        return self.start_after(spec)

    def start_after(self, spec: ProcessSpec, *first: Any) -> ForkedHandle:
        """``first``, if there is one: a function that the process calls before anything else, and
        what it is called with."""
        log = self.folder / "logs" / f"{spec.name}.log"
        log.parent.mkdir(exist_ok=True)
        log.touch()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        # The server of forks has the environment that there was when it began.
        environment = {**os.environ, **spec.variables()}
        arguments = (spec.module, spec.arguments, str(log), environment, spec.secret, first)
        process = context.Process(target=_run, args=arguments, daemon=True)
        process.start()
        self.handles.append(ForkedHandle(spec, process, log))
        return self.handles[-1]

    def close(self, grace_s: float = GRACE_S) -> None:
        for handle in self.handles:
            handle.ask_to_end()
        deadline = time.monotonic() + grace_s
        for handle in self.handles:
            handle.end_by(deadline)


def _run(
    module: str,
    arguments: tuple[str, ...],
    log: str,
    environment: Mapping[str, str],
    secret: bytes,
    first: tuple[Any, ...],
) -> None:
    os.setsid()
    if first:
        first[0](*first[1:])
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(environment)
    keep_secret(secret)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    sys.exit(MAINS[module](arguments))


def _end_with_parent() -> None:
    """However it ends: a killed pytest leaves nothing behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
