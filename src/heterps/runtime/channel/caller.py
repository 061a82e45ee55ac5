"""A connection to one replica of the stage after."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import zmq
from zmq.utils.monitor import recv_monitor_message

from heterps.errors import WireError, WorkerLostError
from heterps.runtime.channel.identity import Identity
from heterps.runtime.channel.peer import BACK, READY, Arrived, Peer, Place
from heterps.wire.sessions import Greeting, read_refusal
from heterps.wire.sockets import Context, Socket, calling_socket, receive, send

_HELLO_S = 5.0
_BACK_OFF_S = 0.1
_REJECTED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_BROKEN = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class Caller:
    """Connects until the other side has said who it is; a connection that breaks after that is
    lost for good, as messages may be lost with it.
    """

    def __init__(self, place: Place, address: str, identity: Identity) -> None:
        self.place = place
        self.address = address
        self.peer: Peer | None = None
        self.lost: WorkerLostError | None = None
        self.socket: Socket | None = None
        self.trouble = "no answer"
        self._identity = identity
        self._greeting: Greeting | None = None
        self._monitor: Socket | None = None
        self._opened = 0.0
        self._open_at = 0.0

    def receive(self) -> list[Arrived]:
        """What has come, as far as it is to be passed on."""
        found = []
        while self.socket is not None and (parts := receive(self.socket)) is not None:
            try:
                arrived = self._receive(parts)
            except WireError as error:
                self.lose(f"sent what makes no sense: {error}")
            except WorkerLostError as error:
                self.lose(error.problem)
            else:
                found += [arrived] if arrived else []
            if self.peer is not None and self.peer.left:
                self.close(linger_ms=0)
        return found

    def watch(self, now: float, context: Context) -> list[Arrived]:
        """Looks after the connection: what the socket's monitor has seen, and time. What had come
        before it broke is still given."""
        found = []
        while self._monitor is not None and self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            found += self.receive()
            if self._monitor is not None:
                self._seen(event, now)
        if self.peer is not None or self.lost is not None:
            return found
        if self.socket is not None and now - self._opened > _HELLO_S:
            self._again(now, "no answer to hello")
        if self.socket is None and now >= self._open_at:
            self._open(now, context)
        return found

    def lose(self, problem: str) -> None:
        if self.lost is None and not (self.peer and self.peer.left):
            self.lost = self.place.lost(f"{problem} ({self.address})")
            self.close(linger_ms=0)

    def close(self, linger_ms: int) -> None:
        if self.socket is not None:
            self.socket.disable_monitor()
            self.socket.close(linger=linger_ms)
        if self._monitor is not None:
            self._monitor.close()
        if self.peer is not None:
            self.peer.close()
        self.socket = self._monitor = None

    def _open(self, now: float, context: Context) -> None:
        own = self._identity
        self.socket = calling_socket(context, own.key, encrypt=own.encrypt)
        self._monitor = self.socket.get_monitor_socket(_REJECTED | _BROKEN)
        self.socket.connect(self.address)
        self._opened = now
        self._greeting = Greeting(own.key, own.client(), own.generation)
        # Where the other side has refused the connection by now; the monitor says why.
        with suppress(zmq.Again):
            send(self.socket, self._greeting.hello())

    def _again(self, now: float, trouble: str) -> None:
        self.trouble = trouble
        self.close(linger_ms=0)
        self._open_at = now + _BACK_OFF_S

    def _seen(self, event: int, now: float) -> None:
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.lose("refused this worker: not this run's key")
        elif event & _REJECTED:
            self.lose("the handshake failed; one side may encrypt alone")
        elif self.peer is not None:
            self.lose("the connection was lost")
        else:
            self._again(now, "the connection was lost")

    def _receive(self, parts: Sequence[memoryview]) -> Arrived | None:
        problem = read_refusal(parts)
        if problem is not None:
            self.lose(f"refused this worker: {problem}")
            return None
        if self.peer is not None:
            return self.peer.receive(self.peer.session.open(parts))
        assert self._greeting is not None
        session, about = self._greeting.accept(parts)
        if [about.get("stage"), about.get("replica")] != list(self.place):
            self.lose(f"stage {about.get('stage')} replica {about.get('replica')} answers there")
            return None
        shared = self.address.startswith("ipc://")
        self.peer = Peer(self.place, session, self._deliver, takes=BACK, shared=shared)
        self.peer.say(READY, {"shared": shared})
        return None

    def _deliver(self, parts: list[bytes | memoryview]) -> None:
        if self.socket is None:
            raise self.lost or self.place.lost("the connection is closed")
        send(self.socket, parts)
