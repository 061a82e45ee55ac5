"""Every error a person can meet.

HeterPSError
├── InputError            a field of a file or an argument is wrong; carries its path
│   ├── UnknownNameError  a name that is not among the known ones; suggests the nearest
│   ├── NoRoomError       a plan needs more units than a cluster has, or has free
│   └── ModelError        a model that cannot be built, cut or trained; names the layer or the file
├── InfeasibleError       no plan keeps the constraints; carries the reason and what is reachable
├── NoPlanFoundError      a method gave up though plans may exist; another method can decide
├── MissingExtraError     an optional dependency is not installed
├── PolicyError           a saved scheduling policy cannot be used
├── NotCommittedError     a batch that a pull waits for did not commit in time
├── StoreError            the cold file of a table, or the disk under it, failed
├── SnapshotError         a snapshot cannot be written or loaded; names the file
├── WireError             a message is malformed, too large, a replay, or signed with another key
├── ServerError           a parameter server does not answer, or failed; names shard and address
├── WorkerLostError       a worker has gone, or cannot be understood; names stage and replica
└── ProcessError          a process did not start, or ended; carries its name and last words
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal


class HeterPSError(Exception):
    """The root; its message is one line that says what to do."""


class InputError(HeterPSError):
    """A bad field: ``path`` says which, the message what was expected."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class UnknownNameError(InputError):
    """A name that is not among the known ones."""

    def __init__(self, path: str, what: str, given: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(given, names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        listed = ", ".join(names) if names else "none"
        super().__init__(path, f"unknown {what} '{given}' (known: {listed}){hint}")
        self.given = given


class NoRoomError(InputError):
    """A cluster lacks what a plan needs, or others use it. A run that has begun can fit its plan to
    what is there."""


class ModelError(InputError):
    """A model that cannot be built, cut or trained: ``path`` is the layer, or the file and line."""


class InfeasibleError(HeterPSError):
    """No plan keeps the constraints.

    ``reason`` is the first that applies of ``layer``, ``memory``, ``limit`` and ``throughput``;
    ``max_throughput`` is the largest that is reachable (samples per second), with ``throughput``.
    """

    def __init__(self, reason: str, detail: str, max_throughput: float | None = None) -> None:
        super().__init__(f"no feasible plan ({reason}): {detail}")
        self.reason = reason
        self.detail = detail
        self.max_throughput = max_throughput


class NoPlanFoundError(HeterPSError):
    """A method that proves nothing found no plan, though the problem has one."""

    def __init__(self, method: str, evaluations: int) -> None:
        super().__init__(
            f"{method} found no feasible plan in {evaluations} evaluations, which proves nothing: "
            "method 'auto' or 'exact' can decide"
        )
        self.method = method
        self.evaluations = evaluations


class MissingExtraError(HeterPSError):
    """An optional dependency is needed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'heterps[{extra}]'")


class PolicyError(HeterPSError):
    """A saved policy is broken or of another kind."""


class NotCommittedError(HeterPSError):
    """A pull for ``batch`` gave up waiting for the batches before it."""

    def __init__(self, batch: int, committed: int, timeout_s: float) -> None:
        super().__init__(
            f"pull for batch {batch}: only batch {committed} has committed after {timeout_s:g} s; "
            "parts of a batch are missing, or were not announced"
        )
        self.batch = batch
        self.committed = committed


class StoreError(HeterPSError):
    """The cold file of a table failed; what was acknowledged is still in memory."""


class SnapshotError(HeterPSError):
    """A snapshot cannot be written or loaded: ``path`` is the file or folder at fault."""

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(f"snapshot {path}: {problem}")
        self.path = path
        self.problem = problem


class WireError(HeterPSError):
    """A message that cannot be read, trusted or sent."""


class ServerError(HeterPSError):
    """A parameter server does not answer in time, or answered with a failure of its own."""


class WorkerLostError(HeterPSError):
    """The connection to a worker of a neighbouring stage failed, and with it this generation."""

    def __init__(self, stage: int, replica: int, problem: str) -> None:
        super().__init__(f"worker of stage {stage}, replica {replica}: {problem}")
        self.stage = stage
        self.replica = replica
        self.problem = problem


class ProcessError(HeterPSError):
    """A process did not start, or ended when it should not have. ``kind`` says how it was seen:
    ``ended``, ``frozen``, ``stuck``, ``lost``, or ``wrong`` where the process says so itself."""

    def __init__(
        self,
        name: str,
        problem: str,
        kind: Literal["ended", "frozen", "stuck", "lost", "wrong"] = "wrong",
    ) -> None:
        super().__init__(f"process '{name}' {problem}")
        self.name = name
        self.problem = problem
        self.kind = kind
