"""A process on a node of a Ray cluster, as the coordinator knows it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from heterps.errors import ProcessError
from heterps.processes import _TAIL_BYTES
from heterps.runtime.engines.base import GRACE_S, Handle, ProcessSpec
from heterps.runtime.engines.ray.handover import Invitation, hand_over
from heterps.runtime.engines.ray.keeper import FolderError, Seen

_START_S = 120.0
# How long a keeper waits for news, and so keeps others waiting: less while much is new.
_LEAST_LOOK_S, _MOST_LOOK_S, _LOOK_SHARE = 0.05, 1.0, 0.1
_ANSWER_S = 10.0
_FRESH_S = 5.0  # what was seen before that is not known any more
_LAST_PATIENCE_S = 3.0
_GONE = -int(signal.SIGKILL)


class RayHandle(Handle):
    """A thread follows the process, so that everything here but ``stop`` answers at once."""

    def __init__(
        self,
        spec: ProcessSpec,
        ray: Any,
        actor: Any,
        log: Path,
        clock: Callable[[], float] = time.monotonic,
        lost: Callable[[], ProcessError | None] = lambda: None,
    ) -> None:
        """``lost`` is what to raise, once there is no asking for the process any more."""
        super().__init__(spec)
        self._ray = ray
        self._actor = actor
        self._log = log
        self._clock = clock
        self._lost = lost
        self._tail = b""
        self._known_bytes = 0
        self._seen = Seen(None, False, False, b"")
        self._seen_at = clock()
        self._unstarted: ProcessError | None = None
        self._started = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=spec.name, daemon=True)
        self._thread.start()

    def read(self, name: str) -> bytes | None:
        if not self._started.is_set() or self._ended.is_set():
            return None
        try:
            found = self._ask(self._actor.read.remote(name), _ANSWER_S)
        except self._ray.exceptions.RayError:
            return None
        assert found is None or isinstance(found, bytes)
        return found

    def poll(self) -> int | None:
        """Raises ProcessError for one that was not started, or that cannot be asked for."""
        if self._unstarted is not None:
            raise self._unstarted
        lost = self._lost()
        if lost is not None:
            raise lost
        return self._seen.code

    def stopped(self) -> bool:
        return self._seen.stopped and self._is_fresh()

    def wants_to_run(self) -> bool:
        return self._seen.wants_to_run and self._is_fresh()

    def stop(self, grace_s: float = GRACE_S) -> int:
        self.ask_to_end(grace_s)
        return self.end_by(time.monotonic() + grace_s)

    def ask_to_end(self, grace_s: float) -> None:
        """Returns at once."""
        if not self._ended.is_set():
            self._actor.stop.remote(grace_s)

    def end_by(self, deadline: float) -> int:
        """Its exit code; the actor is ended, and the process with it, when that is late."""
        patience = deadline + _LAST_PATIENCE_S - time.monotonic()
        if not self._ended.wait(max(0.0, patience)):
            self.end_actor()
            self._end(_GONE, b"\ndid not end, and its actor was ended\n")
        code = self._seen.code
        assert code is not None
        return code

    def leave(self) -> Any:
        """After its end the actor goes; what Ray calls the answer, or None if there is none to be
        had."""
        return None if self._seen.code == _GONE else self._actor.leave.remote()

    def end_actor(self) -> None:
        with suppress(Exception):  # whatever Ray says of what has gone already
            self._ray.kill(self._actor)

    def last_words(self, lines: int = 3) -> str:
        text = self._tail.decode(errors="replace")
        said = [line.strip() for line in text.splitlines() if line.strip()]
        return " / ".join(said[-lines:]) or "no reason given"

    def _follow(self) -> None:
        """From the start of the actor to the end of the process."""
        try:
            self._start_in_time()
            self._started.set()
            began = time.monotonic()
            while self._seen.code is None:
                wait_s = _LOOK_SHARE * (time.monotonic() - began)
                self._look(min(max(wait_s, _LEAST_LOOK_S), _MOST_LOOK_S))
        except ProcessError as error:
            self._unstarted = error
            self._end(1 if error.kind == "wrong" else _GONE, f"{error.problem}\n".encode())
        except self._ray.exceptions.RayError as error:
            self._end(_GONE, f"{_short(error)}\n".encode())
        self._ended.set()

    def _start_in_time(self) -> None:
        try:
            self._start()
        except self._ray.exceptions.GetTimeoutError:
            problem = f"did not start in {_START_S:g} s: Ray has no actor for it, or a slow one"
            raise ProcessError(self.spec.name, problem, "stuck") from None

    def _start(self) -> None:
        spec = self.spec
        there, invitation = self._invited()
        if there != version("heterps"):
            problem = (
                f"was not started: its node has heterps {there}, this one {version('heterps')}"
            )
            raise ProcessError(spec.name, problem)
        if spec.secret:
            hand_over(spec.name, invitation, spec.secret)
        arguments = (spec.module, spec.arguments, spec.variables(), bool(spec.secret))
        self._ask(self._actor.start.remote(*arguments), _START_S)

    def _invited(self) -> tuple[str, Invitation]:
        try:
            there, invitation = self._ask(self._actor.invite.remote(), _START_S)
        except self._ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, FolderError):
                raise
            raise ProcessError(self.spec.name, f"was not started: {error.cause}") from None
        return there, invitation

    def _look(self, wait_s: float) -> None:
        asked = self._actor.look.remote(self._known_bytes, wait_s)
        while True:
            try:
                seen = self._ask(asked, _ANSWER_S)
                break
            except self._ray.exceptions.GetTimeoutError:
                continue  # a silent node: beats tell whether its process lives
        self._keep(seen.output)
        self._seen, self._seen_at = seen, self._clock()

    def _is_fresh(self) -> bool:
        """Whether its node was heard a moment ago; one that is cut off says nothing."""
        return self._clock() - self._seen_at <= _FRESH_S

    def _ask(self, reference: Any, timeout_s: float) -> Any:
        return self._ray.get(reference, timeout=timeout_s)

    def _keep(self, output: bytes) -> None:
        if output:
            self._known_bytes += len(output)
            self._tail = (self._tail + output)[-_TAIL_BYTES:]
            # A full disk does not stop training.
            with suppress(OSError), self._log.open("ab") as file:
                file.write(output)

    def _end(self, code: int, words: bytes) -> None:
        self._keep(words)
        self._seen = Seen(code, False, False, b"")
        self._ended.set()


def _short(error: Exception) -> str:
    """The line that says what happened to an actor, its node or its code."""
    cause = getattr(error, "cause", None)
    if cause is not None:
        return f"its actor failed: {type(cause).__name__}: {cause}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    because = [line for line in lines if "because" in line or line.startswith("ModuleNotFound")]
    said = [*because[-1:], *lines, type(error).__name__][0]
    return f"its actor has gone: {said}"
