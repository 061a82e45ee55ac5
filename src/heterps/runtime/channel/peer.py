"""The worker at the other end of a connection, whichever side connected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import zmq
from torch import Tensor

from heterps.errors import WireError, WorkerLostError
from heterps.runtime.channel.lending import Borrower, Lender, Piece
from heterps.runtime.channel.tensors import Layout, Layouts, bytes_of, unpack
from heterps.wire.frames import MAX_BUFFERS, Buffer, Header, as_buffer
from heterps.wire.sessions import Parts, Session

FORWARD, BACK = "forward", "back"
READY, BYE = "ready", "bye"
# Below this a copy into the message is cheaper than anything else.
INLINE_BYTES = 1 << 14
# From here on a frame of its own goes out without a copy.
_ALONE_BYTES = 1 << 16


class Place(NamedTuple):
    """Which worker."""

    stage: int
    replica: int

    def __str__(self) -> str:
        return f"stage {self.stage} replica {self.replica}"

    def lost(self, problem: str) -> WorkerLostError:
        return WorkerLostError(self.stage, self.replica, problem)


@dataclass(frozen=True)
class Arrived:
    """What a worker was sent: activations with ``kind`` "forward", gradients with "back".

    The tensors may lie in shared memory, which goes back to the sender with the last of them.
    """

    kind: str
    micro_batch: int
    replica: int
    tensors: dict[str, Tensor]


class Peer:
    """``deliver`` puts a message on the line; ``takes`` is the kind that may come from there.

    ``shared`` tries shared memory for what is large. Not for several threads.
    """

    def __init__(
        self,
        place: Place,
        session: Session,
        deliver: Callable[[Parts], None],
        *,
        takes: str,
        shared: bool,
    ) -> None:
        self.place = place
        self.session = session
        self.left = False
        self.lender = Lender(enabled=shared)
        self._borrower = Borrower()
        self._layouts = Layouts()
        self._deliver = deliver
        self._takes = takes

    def send(
        self,
        kind: str,
        micro_batch: int,
        tensors: Mapping[str, Tensor],
        *,
        narrow: bool = False,
        exact: Collection[str] = (),
    ) -> None:
        """Raises WorkerLostError when the peer has gone, WireError for what cannot be sent."""
        layout = self._layouts.of(tensors, narrow=narrow, exact=exact)
        piece = self._piece(layout.packed_bytes)
        if piece is not None:
            buffers = [piece]
            layout.pack(tensors, torch.from_numpy(piece.array))
        else:
            if layout.packed_bytes >= INLINE_BYTES:
                alone = layout.large(_ALONE_BYTES, MAX_BUFFERS - 1)
                layout = self._layouts.of(tensors, narrow=narrow, exact=exact, alone=alone)
            buffers = _inline(layout, tensors)
        self.say(kind, {"micro_batch": micro_batch, "tensors": layout.encoded}, buffers)

    def say(self, verb: str, fields: Mapping[str, Any], buffers: Sequence[Buffer] = ()) -> None:
        """Any message; what is done with goes back along with it."""
        done = self._borrower.done_with()
        try:
            self._deliver(self.session.seal(verb, {**fields, "done": done}, buffers))
        except zmq.Again:
            raise self.place.lost("takes no more messages") from None
        except zmq.ZMQError as error:
            raise self.place.lost(f"cannot be reached: {error.strerror}") from None

    def settle(self) -> None:
        """Says what should not wait for the next message."""
        if self._borrower.owes:
            self.say("done", {})

    def receive(self, header: Header) -> Arrived | None:
        """Acts on a message that the session has found genuine; raises WireError if it makes no
        sense, which is the peer's fault."""
        for piece in _pieces(header.fields.get("done")):
            self.lender.give_back(piece)
        match header.verb, header.fields:
            case verb, {"micro_batch": int(number), "tensors": bytes(encoded)} if (
                verb == self._takes and number >= 0
            ):
                parts = [self._memory(buffer) for buffer in header.buffers]
                tensors = unpack(self._layouts.read(encoded), parts)
                return Arrived(verb, number, self.place.replica, tensors)
            case "attach", {"segment": int(number), "path": str(path), "size_bytes": int(size)}:
                ok = self._borrower.open(number, Path(path), size)
                self.say("attached", {"segment": number, "ok": ok})
            case "attached", {"segment": int(number), "ok": bool(ok)}:
                self.lender.opened(number, ok)
            case "detach", {"segment": int(number)}:
                self._borrower.drop(number)
            case "bye", _:
                self.left = True
            case (("done" | "ping"), _):
                pass
            case verb, _:
                raise WireError(f"'{verb[:40]}' is not expected here")
        return None

    def close(self) -> None:
        self.lender.close()

    def _piece(self, size_bytes: int) -> Buffer | None:
        if size_bytes < INLINE_BYTES:
            return None
        piece = self.lender.take(size_bytes)
        for segment in self.lender.new_segments():
            place = {"segment": segment.number, "path": str(segment.path)}
            self.say("attach", {**place, "size_bytes": segment.size_bytes})
        for number in self.lender.superseded():
            self.say("detach", {"segment": number})
        return piece

    def _memory(self, buffer: Buffer) -> Tensor:
        if buffer.dtype != "u1" or len(buffer.shape) != 1:
            raise WireError("tensors travel as plain bytes")
        if buffer.array is None:
            return self._borrower.memory(buffer)
        # Small frames share memory with their neighbours, and may lie anywhere.
        moved = buffer.array.nbytes < INLINE_BYTES or buffer.array.ctypes.data % 8
        return torch.from_numpy(buffer.array.copy() if moved else buffer.array)


def _inline(layout: Layout, tensors: Mapping[str, Tensor]) -> list[Buffer]:
    packed = np.empty(layout.packed_bytes, np.uint8)
    layout.pack(tensors, torch.from_numpy(packed))
    alone = [bytes_of(tensors[name]).numpy() for name in layout.alone]
    return [as_buffer(array) for array in (packed, *alone)]


def _pieces(value: Any) -> list[Piece]:
    if not isinstance(value, tuple):
        raise WireError("a message says what it is done with")
    for item in value:
        match item:
            case (int(), int()):
                pass
            case _:
                raise WireError("a piece is a segment and an offset")
    return [Piece(*item) for item in value]
