"""A client's connections, one to each shard, and the thread that owns them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from heterps.errors import ServerError
from heterps.ps.calls import Call
from heterps.ps.link import Identity, Link
from heterps.wire.sockets import Context, Socket
from heterps.wire.wake import Wake

_TICK_MS = 50


class Links:
    """All connections of a client, and their thread. Submitting is for every thread."""

    def __init__(self, links: Sequence[Link], identity: Identity) -> None:
        self.all = links
        self._identity = identity
        self._orders: deque[Callable[[], None]] = deque()
        self._wake = Wake()
        self._closing = False
        self._end: ServerError | None = None
        self._next_tick = 0.0
        self._polled: list[Socket] | None = None
        self._poller = zmq.Poller()
        self._thread = threading.Thread(target=self._run, name="heterps links", daemon=True)
        self._thread.start()

    def submit(self, index: int, call: Call) -> None:
        self._order(lambda: self.all[index].submit(call))

    def change_identity(self, identity: Identity) -> None:
        """For a new generation: connections are made anew."""

        def change() -> None:
            self._identity = identity
            for link in self.all:
                link.fail(ServerError("the generation has changed"))

        self._order(change)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._wake.set()
            self._thread.join()
            self._wake.close()

    def _order(self, order: Callable[[], None]) -> None:
        if self._closing or self._end is not None:
            raise self._end or ServerError("this client is closed")
        self._orders.append(order)
        self._wake.set()

    def _run(self) -> None:
        context: Context = zmq.Context()
        end = ServerError("this client is closed")
        try:
            while not self._closing:
                self._step(context)
        except Exception as error:
            end = ServerError(f"this client has failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._end = end
            while self._orders:
                self._orders.popleft()()
            for link in self.all:
                link.fail(end)
            context.term()

    def _step(self, context: Context) -> None:
        for link in self.all:
            if link.wants_to_open:
                link.open(context, self._identity)
        events = self._poll()
        while self._orders:
            self._orders.popleft()()
        for link in self.all:
            if link.socket in events:
                link.receive()
            if link.monitor in events:
                link.watch()
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK_MS / 1000
            for link in self.all:
                link.tick(now)

    def _poll(self) -> dict[Any, int]:
        sources = [socket for link in self.all for socket in (link.socket, link.monitor) if socket]
        if sources != self._polled:
            self._polled, self._poller = sources, zmq.Poller()
            for source in (self._wake.fileno(), *sources):
                self._poller.register(source, zmq.POLLIN)
        events = dict(self._poller.poll(_TICK_MS))
        if self._wake.fileno() in events:
            self._wake.clear()
        return events
