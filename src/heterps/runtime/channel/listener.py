"""The socket that workers of the stage before connect to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from heterps.errors import WireError, WorkerLostError
from heterps.runtime.channel.identity import Identity, place_of
from heterps.runtime.channel.peer import FORWARD, READY, Arrived, Peer, Place
from heterps.wire.sessions import (
    NO_SESSION,
    Parts,
    Session,
    read_hello,
    refusal,
    session_id,
    welcome,
)
from heterps.wire.sockets import Context, Gatekeeper, Socket, listening_socket, receive, send

_MAX_CANDIDATES = 1024
_BURST = 256
# How long after a disconnection its worker is looked for.
_SUSPECT_S = 2.0


@dataclass
class _Candidate:
    """Said hello, and has yet to show that it holds the session's key."""

    place: Place
    session: Session


class Listener:
    """Admits the workers of the stage before this one, each once.

    What is not signed, of another generation or from a wrong stage is refused and changes nothing.
    """

    def __init__(self, context: Context, identity: Identity) -> None:
        self.peers: dict[Place, Peer] = {}
        self.lost: list[WorkerLostError] = []
        self.refused = 0
        self._identity = identity
        self._routes: dict[bytes, Peer] = {}
        self._candidates: OrderedDict[bytes, _Candidate] = OrderedDict()
        self._suspect_until = 0.0
        self._files: list[Path] = []
        self.gate = Gatekeeper(context, identity.key)
        self.socket = listening_socket(context, identity.key, encrypt=identity.encrypt)
        # A message to who has gone is an error then, and not dropped.
        self.socket.router_mandatory = True
        self._monitor: Socket = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)

    def bind(self, address: str) -> str:
        """Raises zmq.ZMQError."""
        self.socket.bind(address)
        bound = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        found = bound.decode().rstrip("\0")
        if found.startswith("ipc://"):
            self._files.append(Path(found.removeprefix("ipc://")))
        return found

    def receive(self) -> list[Arrived]:
        """What has come, as far as it is to be passed on."""
        found = []
        for _ in range(_BURST):
            parts = receive(self.socket)
            if parts is None:
                break
            arrived = self._receive(bytes(parts[0]), parts[1:])
            if arrived is not None:
                found.append(arrived)
        return found

    def watch(self, now: float) -> list[Arrived]:
        """Looks after those whose connection ended, and gives what they had still sent.

        The monitor tells that one has ended, not whose: a message finds it out, perhaps only the
        next time, since the socket itself hears of it later.
        """
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
            self._suspect_until = now + _SUSPECT_S
        if now >= self._suspect_until:
            return []
        gone = [peer for peer in self.peers.values() if not peer.left and not _reaches(peer)]
        found = self.receive() if gone else []
        if len(found) < _BURST:
            for peer in gone:
                self._lose(peer, "the connection was lost")
        return found

    def close(self, linger_ms: int) -> None:
        self.socket.disable_monitor()
        self._monitor.close()
        self.socket.close(linger=linger_ms)
        self.gate.close()
        for path in self._files:
            path.unlink(missing_ok=True)

    def _receive(self, route: bytes, parts: Sequence[memoryview]) -> Arrived | None:
        peer = self._routes.get(route)
        try:
            if session_id(parts) == NO_SESSION:
                self._send(route, self._greet(parts))
                return None
            if peer is None:
                self._admit(route, parts)
                return None
            header = peer.session.open(parts)
        except WireError as error:
            self.refused += 1
            self._refuse(route, str(error))
            return None
        try:
            return peer.receive(header)
        except WireError as error:
            self._lose(peer, f"sent what makes no sense: {error}")
        except WorkerLostError as error:
            self._lose(peer, error.problem)
        return None

    def _greet(self, parts: Sequence[memoryview]) -> Parts:
        own = self._identity
        hello = read_hello(parts, own.key)
        place = place_of(hello.client)
        if hello.generation != own.generation:
            which = "is over" if hello.generation < own.generation else "has not begun here"
            problem = f"generation {hello.generation} {which}; this worker is at {own.generation}"
            raise WireError(problem)
        if place.stage != own.place.stage - 1:
            raise WireError(f"{place} has nothing to send to {own.place}")
        session, answer = welcome(hello, own.key, own.generation, own.about())
        self._candidates[session.id] = _Candidate(place, session)
        while len(self._candidates) > _MAX_CANDIDATES:
            self._candidates.popitem(last=False)
        return answer

    def _admit(self, route: bytes, parts: Sequence[memoryview]) -> None:
        """The first message of a session's own key makes a candidate a peer."""
        id = session_id(parts)
        candidate = self._candidates.get(id)
        if candidate is None:
            raise WireError("unknown session; say hello")
        header = candidate.session.open(parts)
        del self._candidates[id]
        if header.verb != READY:
            raise WireError(f"expected '{READY}' first")
        if candidate.place in self.peers:
            raise WireError(f"{candidate.place} is connected already")
        peer = Peer(
            candidate.place,
            candidate.session,
            lambda parts: send(self.socket, [route, *parts]),
            takes=FORWARD,
            shared=header.fields.get("shared") is True,
        )
        self.peers[peer.place] = self._routes[route] = peer

    def _lose(self, peer: Peer, problem: str) -> None:
        if not peer.left:
            peer.left = True
            peer.close()
            self.lost.append(peer.place.lost(problem))

    def _refuse(self, route: bytes, problem: str) -> None:
        self._send(route, refusal(problem, self._identity.generation))

    def _send(self, route: bytes, parts: Parts) -> None:
        """To a stranger that has gone, or reads nothing, an answer is dropped."""
        try:
            send(self.socket, [route, *parts])
        except zmq.ZMQError:
            self.refused += 1


def _reaches(peer: Peer) -> bool:
    try:
        peer.say("ping", {})
    except WorkerLostError:
        return False
    return True
