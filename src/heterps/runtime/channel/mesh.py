"""All connections of a worker with the stages before and after its own."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, Self

import zmq
from torch import Tensor

from heterps.errors import InputError, WorkerLostError
from heterps.runtime.channel.caller import Caller
from heterps.runtime.channel.identity import Identity
from heterps.runtime.channel.listener import Listener
from heterps.runtime.channel.peer import BACK, BYE, FORWARD, Arrived, Peer, Place
from heterps.runtime.channel.tensors import wire_bytes
from heterps.wire.sockets import MAX_IPC_PATH, Context, Socket, bind_problem
from heterps.wire.wake import Source

_WATCH_S = 0.1
_LINGER_MS = 2000


class Mesh:
    """A worker listens once, connects to the replicas of the next stage that it shares
    micro-batches with, and then sends and receives. On a connection activations go forward and
    gradients come back. For one thread, and without any of its own: strangers and new neighbours
    are answered while it connects and receives.

    A tensor that was sent must not change afterwards. Messages of one peer arrive in the order in
    which they were sent. When a peer is gone, or says what makes no sense, WorkerLostError names
    it: what was on its way is lost, so a run goes on with a new generation and new meshes.
    """

    def __init__(
        self,
        key: bytes,
        generation: int,
        me: tuple[int, int],
        *,
        encrypt: bool = False,
        wire_dtype: Literal["fp32", "bf16"] = "fp32",
        wake: Source | None = None,
    ) -> None:
        self._identity = Identity(key, generation, Place(*me), encrypt)
        self._narrow = wire_dtype == "bf16"
        self._context: Context = zmq.Context()
        self._listener = Listener(self._context, self._identity)
        self._callers: dict[Place, Caller] = {}
        self._inbox: list[Arrived] = []
        self._wakes = [] if wake is None else [wake]
        self._woken = False
        self._next_watch = self._next_look = 0.0
        self._polled: list[Socket | Source] = []
        self._poller = zmq.Poller()
        self._closed = False

    @property
    def refused(self) -> int:
        """How many messages came that could not be trusted."""
        return self._listener.refused

    @property
    def shared_bytes(self) -> int:
        """Of shared memory that this worker has made for its peers."""
        return sum(peer.lender.size_bytes for peer in self._peers())

    @property
    def before(self) -> list[Place]:
        """The workers of the stage before that have connected."""
        return [place for place, peer in self._listener.peers.items() if not peer.left]

    def listen(self, address: str) -> str:
        """``ipc://path`` or ``tcp://host:*``; gives the address that others can connect to."""
        path = address.removeprefix("ipc://")
        if path != address and len(path.encode()) >= MAX_IPC_PATH:
            raise InputError("address", f"{path} is too long for a unix socket")
        try:
            return self._listener.bind(address)
        except zmq.ZMQError as error:
            raise InputError("address", bind_problem(address, error)) from None

    def connect(self, addresses: Mapping[tuple[int, int], str], *, timeout_s: float = 60.0) -> None:
        """Returns when all have answered; raises WorkerLostError for the first that does not."""
        for key, address in addresses.items():
            place = Place(*key)
            if place.stage != self._identity.place.stage + 1 or place in self._callers:
                raise InputError("addresses", f"{place} is not to be connected to")
            self._callers[place] = Caller(place, address, self._identity)
        deadline = time.monotonic() + timeout_s
        while late := [c for c in self._callers.values() if c.peer is None]:
            self._step(0.02)
            self._watch()
            self._raise_lost()
            if time.monotonic() >= deadline:
                late[0].lose(f"no connection in {timeout_s:g} s: {late[0].trouble}")

    def send_forward(
        self,
        replica: int,
        micro_batch: int,
        tensors: Mapping[str, Tensor],
        *,
        exact: Collection[str] = (),
    ) -> None:
        """Activations to a replica of the next stage. ``exact`` names keep their precision even
        where the rest travels as bfloat16: weights of samples, say."""
        place = Place(self._identity.place.stage + 1, replica)
        caller = self._callers.get(place)
        peer = caller.peer if caller else None
        self._send(place, peer, FORWARD, micro_batch, tensors, exact)

    def send_back(
        self,
        replica: int,
        micro_batch: int,
        tensors: Mapping[str, Tensor],
        *,
        exact: Collection[str] = (),
    ) -> None:
        """Gradients to a replica of the stage before."""
        place = Place(self._identity.place.stage - 1, replica)
        self._send(place, self._listener.peers.get(place), BACK, micro_batch, tensors, exact)

    def wire_bytes(self, tensors: Mapping[str, Tensor], exact: Collection[str] = ()) -> int:
        """What they take on their way."""
        return wire_bytes(tensors, narrow=self._narrow, exact=exact)

    def also_wake_by(self, sources: Iterable[Source]) -> None:
        self._wakes += sources

    def receive(self, timeout_s: float) -> list[Arrived]:
        """Everything there is; waits for something, or to be woken, up to ``timeout_s``. What had
        come before a peer was lost is still given out."""
        for peer in self._peers():
            # Who cannot be told is found to be lost below.
            with suppress(WorkerLostError):
                peer.settle()
        deadline = time.monotonic() + timeout_s
        left = timeout_s
        while True:
            self._step(max(0.0, min(left, _WATCH_S)))
            now = time.monotonic()
            if now >= self._next_watch:
                self._next_watch = now + _WATCH_S
                self._watch()
            if self._inbox:
                found, self._inbox = self._inbox, []
                return found
            self._raise_lost()
            left = deadline - now
            if left <= 0 or self._woken:
                self._woken = False
                return []

    def close(self, *, failed: bool = False) -> None:
        """What was sent still goes out, if its peer takes it in the next seconds. Peers that were
        not told goodbye, since this worker ``failed``, find it lost.
        """
        if self._closed:
            return
        self._closed = True
        # Who has left by now need not be waited for.
        self._step(0.0)
        self._watch()
        for peer in self._peers() if not failed else ():
            with suppress(WorkerLostError):
                peer.say(BYE, {})
        for caller in self._callers.values():
            caller.close(_LINGER_MS)
        for peer in self._listener.peers.values():
            peer.close()
        self._listener.close(_LINGER_MS)
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)

    def _send(
        self,
        place: Place,
        peer: Peer | None,
        kind: str,
        micro_batch: int,
        tensors: Mapping[str, Tensor],
        exact: Collection[str],
    ) -> None:
        if peer is None or peer.left:
            raise place.lost("is not connected")
        peer.send(kind, micro_batch, tensors, narrow=self._narrow, exact=exact)

    def _peers(self) -> list[Peer]:
        """Those that are there."""
        called = [c.peer for c in self._callers.values() if c.peer is not None and not c.lost]
        return [p for p in (*called, *self._listener.peers.values()) if not p.left]

    def _step(self, wait_s: float) -> None:
        """Takes in what has come, or waits for it."""
        now = time.monotonic()
        if wait_s <= 0.0 and now < self._next_look:
            self._glance()
            return
        self._next_look = now + _WATCH_S
        events = self._poll(wait_s)
        for source in self._wakes:
            if source.fileno() in events:
                source.clear()
                self._woken = True
        if self._listener.gate.socket in events:
            self._listener.gate.answer()
        if self._listener.socket in events:
            self._inbox += self._listener.receive()
        for caller in self._callers.values():
            if caller.socket in events:
                self._inbox += caller.receive()

    def _glance(self) -> None:
        """What neighbours and awaited sources have. Strangers can wait a little, as a look at all
        sockets takes 0.2 ms between two products of matrices: with cold caches, and after the
        other threads of this process, which it lets go first."""
        for source in self._wakes:
            if source.awaited:
                source.clear()
        self._inbox += self._listener.receive()
        for caller in self._callers.values():
            self._inbox += caller.receive()

    def _watch(self) -> None:
        now = time.monotonic()
        self._inbox += self._listener.watch(now)
        for caller in self._callers.values():
            self._inbox += caller.watch(now, self._context)

    def _poll(self, wait_s: float) -> dict[Any, int]:
        called = [c.socket for c in self._callers.values() if c.socket is not None]
        sources: list[Socket | Source] = [
            *(self._listener.gate.socket, self._listener.socket),
            *called,
            *(source for source in self._wakes if source.fileno() >= 0),
        ]
        if sources != self._polled:
            self._polled, self._poller = sources, zmq.Poller()
            for source in sources:
                self._poller.register(source, zmq.POLLIN)
        return dict(self._poller.poll(math.ceil(wait_s * 1000)))

    def _raise_lost(self) -> None:
        lost = [*self._listener.lost, *(c.lost for c in self._callers.values() if c.lost)]
        if lost:
            raise lost[0]
