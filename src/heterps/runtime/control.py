"""Between the coordinator and its workers: commands one way, reports the other.

The connections are those of the data plane, under a key of their own: the coordinator listens, a
worker is known by its number. Tensors may come along, as weights do.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgpack
import torch
from torch import Tensor

from heterps.errors import HeterPSError, WireError, WorkerLostError
from heterps.runtime.channel import Mesh, Place
from heterps.wire.keys import subkey
from heterps.wire.wake import Wake

_COORDINATOR = Place(1, 0)
_SAID = "message"  # the tensor that holds kind and fields
BEAT_S = 1.0


class Message(NamedTuple):
    """``sender`` is the worker's number."""

    sender: int
    kind: str
    fields: dict[str, Any]
    tensors: dict[str, Tensor]


class Desk:
    """The coordinator's side, for one thread."""

    def __init__(
        self, key: bytes, generation: int, *, encrypt: bool = False, wake: Wake | None = None
    ) -> None:
        """``wake`` ends a wait for messages."""
        self._mesh = Mesh(_key(key), generation, _COORDINATOR, encrypt=encrypt, wake=wake)
        self._sent = 0

    def listen(self, address: str) -> str:
        return self._mesh.listen(address)

    def send(
        self,
        worker: int,
        kind: str,
        fields: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Raises WorkerLostError, whose replica is the worker's number."""
        self._sent += 1
        self._mesh.send_back(worker, self._sent, _packed(kind, fields, tensors))

    def receive(self, timeout_s: float) -> list[Message]:
        """Everything there is; raises WorkerLostError when a worker has gone."""
        return [_read(a.replica, a.tensors) for a in self._mesh.receive(timeout_s)]

    def close(self) -> None:
        self._mesh.close()


class Line:
    """A worker's side. A thread of its own keeps it: it says now and then that the worker lives,
    with a count of what it has done, and takes in commands, setting ``wake`` for each. While the
    worker ``waits`` for others than those of its run, it does what it can.
    """

    def __init__(
        self,
        key: bytes,
        generation: int,
        number: int,
        address: str,
        *,
        encrypt: bool = False,
        wake: Wake,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self.commands: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.progress = 0  # grows with everything that the worker does
        self._wake = wake
        self._waits = waits
        self._outgoing: queue.SimpleQueue[dict[str, Tensor]] = queue.SimpleQueue()
        self._own_wake = Wake()
        self._ending = False
        self._lost: HeterPSError | None = None
        self._mesh = Mesh(_key(key), generation, (0, number), encrypt=encrypt, wake=self._own_wake)
        try:
            self._mesh.connect({_COORDINATOR: address})
        except HeterPSError:
            self._mesh.close(failed=True)
            raise
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def send(
        self,
        kind: str,
        fields: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._outgoing.put(_packed(kind, fields, tensors))
        self._own_wake.set()

    def wait(self, timeout_s: float | None = None) -> Message | None:
        """The next command. Raises what ended the connection to the coordinator."""
        self.check()
        try:
            return self.commands.get(timeout=timeout_s)
        except queue.Empty:
            self.check()
            return None

    def check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """What was sent still goes out."""
        self._ending = True
        self._own_wake.set()
        self._thread.join(timeout=10.0)

    def _run(self) -> None:
        sent, beat_at = 0, 0.0
        try:
            while not self._ending or not self._outgoing.empty():
                while not self._outgoing.empty():
                    sent += 1
                    self._mesh.send_forward(0, sent, self._outgoing.get())
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + BEAT_S
                    sent += 1
                    self.progress += self._waits()
                    said = _packed("beat", {"progress": self.progress}, None)
                    self._mesh.send_forward(0, sent, said)
                for arrived in self._mesh.receive(BEAT_S / 2):
                    self.commands.put(_read(arrived.replica, arrived.tensors))
                    self._wake.set()
        except HeterPSError as error:
            self._lost = _coordinator_lost(error)
            self.commands.put(Message(0, "lost", {}, {}))
            self._wake.set()
        finally:
            self._mesh.close(failed=self._lost is not None)


def _key(key: bytes) -> bytes:
    return subkey(key, "control")


def _coordinator_lost(error: HeterPSError) -> HeterPSError:
    problem = error.problem if isinstance(error, WorkerLostError) else str(error)
    return WireError(f"the coordinator: {problem}")


def _packed(
    kind: str, fields: Mapping[str, Any] | None, tensors: Mapping[str, Tensor] | None
) -> dict[str, Tensor]:
    said = msgpack.packb([kind, dict(fields or {})])
    return {_SAID: torch.frombuffer(bytearray(said), dtype=torch.uint8), **(tensors or {})}


def _read(sender: int, tensors: dict[str, Tensor]) -> Message:
    said = tensors.pop(_SAID, None)
    if said is None or said.dtype != torch.uint8:
        raise WireError("a control message without a message")
    try:
        match msgpack.unpackb(said.numpy().tobytes(), raw=False, strict_map_key=False):
            case [str(kind), dict(fields)]:
                return Message(sender, kind, fields, tensors)
    except (ValueError, msgpack.UnpackException) as error:
        raise WireError(f"a control message that cannot be read: {error}") from None
    raise WireError("a control message is a kind and fields")
