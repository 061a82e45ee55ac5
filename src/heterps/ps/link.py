"""A client's connection to one shard."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from heterps.errors import HeterPSError, ServerError, WireError
from heterps.ps.calls import Call
from heterps.ps.pool import Pool
from heterps.ps.protocol import DONE, NO_SEGMENT, as_error
from heterps.wire.frames import Header
from heterps.wire.segments import Segment
from heterps.wire.sessions import Greeting, Session, read_refusal
from heterps.wire.sockets import Context, Socket, calling_socket, receive, send

PING_S = 10.0
_HELLO_S = 5.0
_BACK_OFF_S = (0.02, 0.2, 1.0)
_LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


@dataclass(frozen=True)
class Identity:
    """Who a client is, and in which generation."""

    key: bytes
    client: bytes
    generation: int
    encrypt: bool


class Link:
    """The connection to one shard; ``pool`` is for every thread, all else for the links' own.

    When it breaks, what was not answered is sent again on a new connection, a few times.
    """

    def __init__(self, shard: int, shards: int, address: str) -> None:
        self.shard = shard
        self.address = address
        self.where = f"shard {shard} at {address}"
        self.pool = Pool(enabled=False)
        self.socket: Socket | None = None
        self.monitor: Socket | None = None
        self._shards = shards
        self._instance: bytes | None = None
        self._greeting: Greeting | None = None
        self._session: Session | None = None
        self._waiting: deque[Call] = deque()
        self._sent: dict[int, Call] = {}
        self._failures = 0
        self._opened = self._last_sent = 0.0
        self._reopen_at = 0.0

    def submit(self, call: Call) -> None:
        if self._session is None:
            self._waiting.append(call)
        else:
            self._send(call)

    def open(self, context: Context, identity: Identity) -> None:
        self.pool = Pool(enabled=self.address.startswith("ipc://"))
        self.socket = calling_socket(context, identity.key, encrypt=identity.encrypt)
        self.monitor = self.socket.get_monitor_socket(_LOST)
        self.socket.connect(self.address)
        self._opened = time.monotonic()
        self._greeting = Greeting(identity.key, identity.client, identity.generation)
        # Where the other side has refused the connection by now; the monitor says why.
        with suppress(zmq.Again):
            send(self.socket, self._greeting.hello())

    @property
    def wants_to_open(self) -> bool:
        return bool(self._waiting) and self.socket is None and time.monotonic() >= self._reopen_at

    def receive(self) -> None:
        """Takes in what has come."""
        while self.socket is not None and (parts := receive(self.socket)) is not None:
            try:
                self._receive(parts)
            except WireError as error:
                self.lose(f"sent what cannot be trusted: {error}")

    def watch(self) -> None:
        """Takes in what the socket's monitor has seen."""
        if self.monitor is None:
            return
        event = recv_monitor_message(self.monitor)["event"]
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._refuse("not this run's key")
        elif event in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED):
            self.lose("the connection was lost or refused")
        else:
            self.lose("the handshake failed; one side may have another key, or encrypt alone")

    def tick(self, now: float) -> None:
        """Looks after deadlines."""
        for call in [*self._waiting, *self._sent.values()]:
            if now >= call.expires:
                call.settle(ServerError(f"{self.where}: no answer to '{call.verb}' in time"))
        self._waiting = deque(call for call in self._waiting if not call.settled)
        if self.socket is None:
            return
        if self._session is None:
            if now - self._opened > _HELLO_S:
                self.lose("no answer to hello")
        elif any(call.overdue(now) for call in self._sent.values()):
            self.lose("no answer")
        elif now - self._last_sent > PING_S:
            self._say("ping", {})

    def lose(self, reason: str) -> None:
        """Gives the connection up; calls that may be tried again wait for the next one."""
        calls = sorted([*self._sent.values(), *self._waiting], key=lambda call: call.number)
        self.disconnect()
        for call in calls:
            call.attempts_left -= 1
            if call.attempts_left >= 0 and not call.settled:
                self._waiting.append(call)
            else:
                call.settle(ServerError(f"{self.where}: {reason} (call '{call.verb}')"))
                call.release()
        back_off = _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
        self._failures += 1
        self._reopen_at = time.monotonic() + back_off

    def fail(self, error: HeterPSError) -> None:
        """Ends all calls."""
        calls = [*self._sent.values(), *self._waiting]
        self.disconnect()
        for call in calls:
            call.settle(error)
            call.release()

    def disconnect(self) -> None:
        if self.socket is not None:
            self.socket.disable_monitor()
            if self._session is not None:
                self._say("bye", {})
            self.socket.close(linger=200)
        if self.monitor is not None:
            self.monitor.close()
        self.socket = self.monitor = None
        self._session = self._greeting = None
        self.pool.close()
        self._sent.clear()
        self._waiting.clear()

    def _receive(self, parts: Sequence[memoryview]) -> None:
        problem = read_refusal(parts)
        if self._session is None:
            if problem is not None:
                self._refuse(problem)
            else:
                self._begin(parts)
        elif problem is not None:
            self.lose(problem)
        else:
            self._take(self._session.open(parts))

    def _begin(self, parts: Sequence[memoryview]) -> None:
        assert self._greeting is not None
        session, about = self._greeting.accept(parts)
        if (about.get("shard"), about.get("shards")) != (self.shard, self._shards):
            self._refuse(f"it is shard {about.get('shard')} of {about.get('shards')}")
            return
        if self._instance not in (None, about.get("instance")):
            self._refuse("the server was started anew, its rows are gone")
            return
        self._instance = about.get("instance")
        self._session = session
        self._failures = 0
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            self._send(call)

    def _refuse(self, problem: str) -> None:
        self.fail(ServerError(f"{self.where} refused this client: {problem}"))

    def _take(self, header: Header) -> None:
        number = header.fields.get("call")
        call = self._sent.pop(number, None) if isinstance(number, int) else None
        if call is None:
            return
        if header.verb == DONE:
            call.settle(call.reply(header))
        elif header.fields.get("error") == NO_SEGMENT:
            self.pool.enabled = False
            self._send(call)
            return
        else:
            waited_s = time.monotonic() - (call.sent or 0.0)
            call.settle(as_error(header.fields, self.where, waited_s))
        call.release()
        for gone in self.pool.superseded():
            self._say("detach", {"segment": gone})

    def _send(self, call: Call) -> None:
        for segment in self.pool.new_segments():
            self._announce(segment)
        fields, buffers = call.message(self.pool)
        call.sent = time.monotonic()
        self._sent[call.number] = call
        try:
            self._say(call.verb, fields, buffers)
        except WireError as error:
            del self._sent[call.number]
            call.settle(error)
            call.release()

    def _announce(self, segment: Segment) -> None:
        place = {"segment": segment.number, "path": str(segment.path)}
        self._say("attach", {**place, "size_bytes": segment.size_bytes})

    def _say(self, verb: str, fields: Mapping[str, Any], buffers: Sequence[Any] = ()) -> None:
        assert self._session is not None
        assert self.socket is not None
        self._last_sent = time.monotonic()
        try:
            send(self.socket, self._session.seal(verb, {"call": 0, **fields}, buffers))
        except zmq.Again:
            return  # a full queue: the call is overdue in time, and then sent again
