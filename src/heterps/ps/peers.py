"""The clients that a server knows: their sessions, segments, and what they have had done."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from heterps.errors import InputError, WireError
from heterps.ps.protocol import SegmentGoneError
from heterps.wire.frames import Buffer, Header
from heterps.wire.segments import Segment
from heterps.wire.sessions import (
    NO_SESSION,
    Parts,
    Session,
    read_hello,
    session_id,
    welcome,
)

# A client that lives is heard of every few seconds, see link.PING_S.
FORGET_AFTER_S = 60.0
MAX_SESSIONS = 4096
MAX_UNPROVEN = 1024
MAX_SEGMENTS = 16
REMEMBERED_CALLS = 1024
MAX_CLIENTS = 1024


@dataclass
class Peer:
    """A client's session."""

    session: Session
    client: bytes
    heard: float
    segments: dict[int, Segment] = field(default_factory=dict)

    def attach(self, number: int, path: Path, size_bytes: int) -> None:
        if len(self.segments) >= MAX_SEGMENTS:
            raise InputError("segment", f"a connection has at most {MAX_SEGMENTS}")
        self.segments[number] = Segment.open(number, path, size_bytes)

    def array(self, buffer: Buffer) -> NDArray[Any]:
        """The buffer's contents, wherever it travelled."""
        if buffer.array is not None:
            return buffer.array
        if buffer.segment not in self.segments:
            raise SegmentGoneError(f"no segment {buffer.segment}")
        return self.segments[buffer.segment].array(buffer)


class Peers:
    """Sessions by their id. One that has said hello but nothing signed with the session's own key
    (a recorded hello, perhaps) is kept apart, where it can crowd out only its like.
    """

    def __init__(self, key: bytes, generation: int, about: Mapping[str, Any]) -> None:
        self._key = key
        self.generation = generation
        self._about = about
        self._proven: OrderedDict[bytes, Peer] = OrderedDict()
        self._unproven: OrderedDict[bytes, Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._proven)

    def open(self, parts: Sequence[memoryview]) -> tuple[Peer, Header]:
        """Raises WireError for what is not from a known session, or not new."""
        id = session_id(parts)
        peer = self._proven.get(id) or self._unproven.get(id)
        if peer is None:
            raise WireError("unknown session; say hello")
        header = peer.session.open(parts)
        peer.heard = time.monotonic()
        if self._unproven.pop(id, None) is not None:
            self._proven[id] = peer
            _keep_newest(self._proven, MAX_SESSIONS)
        return peer, header

    def is_hello(self, parts: Sequence[memoryview]) -> bool:
        return session_id(parts) == NO_SESSION

    def greet(self, parts: Sequence[memoryview]) -> Parts:
        """The answer to a hello; raises WireError without the run's key."""
        hello = read_hello(parts, self._key)
        if hello.generation != self.generation:
            raise WireError(wrong_generation(hello.generation, self.generation))
        session, answer = welcome(hello, self._key, self.generation, self._about)
        self._unproven[session.id] = Peer(session, hello.client, time.monotonic())
        _keep_newest(self._unproven, MAX_UNPROVEN)
        return answer

    def forget(self, peer: Peer) -> None:
        self._proven.pop(peer.session.id, None)

    def forget_silent(self, now: float) -> None:
        """Drops who was not heard of for long; his segments go back to the system."""
        for known in (self._proven, self._unproven):
            for id in [id for id, peer in known.items() if now - peer.heard > FORGET_AFTER_S]:
                del known[id]

    def forget_all(self, generation: int) -> None:
        self._proven.clear()
        self._unproven.clear()
        self.generation = generation


class CallLog:
    """Which calls of which client were done, so that a resent one is answered, not repeated."""

    def __init__(self) -> None:
        self._clients: OrderedDict[bytes, OrderedDict[int, Any]] = OrderedDict()
        self._floor: dict[bytes, int] = {}

    def find(self, client: bytes, sequence: int) -> Any:
        """The answer that was given, or None; raises InputError for what may be forgotten."""
        if sequence <= self._floor.get(client, -1):
            raise InputError("sequence", f"call {sequence} is too old to be sent again")
        calls = self._clients.get(client)
        return None if calls is None else calls.get(sequence)

    def add(self, client: bytes, sequence: int, answer: Any) -> None:
        calls = self._clients.setdefault(client, OrderedDict())
        self._clients.move_to_end(client)
        calls[sequence] = answer
        while len(calls) > REMEMBERED_CALLS:
            oldest, _ = calls.popitem(last=False)
            self._floor[client] = max(oldest, self._floor.get(client, -1))
        while len(self._clients) > MAX_CLIENTS:
            gone, _ = self._clients.popitem(last=False)
            self._floor.pop(gone, None)


def wrong_generation(theirs: int, ours: int) -> str:
    if theirs < ours:
        return f"generation {theirs} is over; this server is at {ours}"
    return f"generation {theirs} has not begun here; this server is at {ours}"


def _keep_newest(known: OrderedDict[bytes, Peer], limit: int) -> None:
    while len(known) > limit:
        known.popitem(last=False)
