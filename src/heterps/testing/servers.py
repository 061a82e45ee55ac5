"""Servers to test with: real processes, a peer that may send anything, a line that loses things."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import zmq

from heterps.errors import WireError
from heterps.ps.client import Client
from heterps.ps.processes import start_servers
from heterps.wire.keys import create_key, read_key
from heterps.wire.sessions import Greeting, Parts, Session, read_refusal
from heterps.wire.sockets import (
    Context,
    Gatekeeper,
    calling_socket,
    listening_socket,
    receive,
    send,
)

Views = list[memoryview]


@contextmanager
def serving(folder: Path, count: int = 1, *, tcp: bool = False, **options: Any) -> Iterator[Client]:
    """``count`` server processes and a client of theirs; over tcp alone if asked for."""
    if not (folder / "key").exists():
        create_key(folder)
    settings: dict[str, Any] = {"timeout_s": 20.0, **options}
    started = {name: options[name] for name in ("encrypt", "generation") if name in options}
    with (
        start_servers(folder, count, listen="127.0.0.1" if tcp else None, **started) as found,
        Client([r.addresses[-1] for r in found], read_key(folder), **settings) as client,
    ):
        yield client


class RawPeer:
    """Says whatever it is told to a server."""

    def __init__(self, address: str, key: bytes, generation: int = 0) -> None:
        self._context: Context = zmq.Context()
        self._socket = calling_socket(self._context, key, encrypt=False)
        self._socket.connect(address)
        self._greeting = Greeting(key, bytes(16), generation)

    def greet(self) -> Session:
        """A session, or WireError with the server's reason."""
        answer = self.ask(self._greeting.hello())
        problem = read_refusal(answer)
        if problem is not None:
            raise WireError(problem)
        return self._greeting.accept(answer)[0]

    def ask(self, parts: Parts) -> Views:
        """The answer to a message."""
        send(self._socket, parts)
        return self.hear()

    def say(self, parts: Parts) -> None:
        send(self._socket, parts)

    def hear(self, timeout_s: float = 20.0) -> Views:
        if not self._socket.poll(round(timeout_s * 1000)):
            raise TimeoutError("the server does not answer")
        answer = receive(self._socket)
        assert answer is not None
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._context.term()


class LossyLine:
    """Stands between one client and a server; ``lose(verb)`` says which answers do not arrive.

    ``verb`` is the answer's: the headers can be read by everyone who does not encrypt.
    """

    def __init__(self, address: str, key: bytes, lose: Callable[[str], bool]) -> None:
        self._lose = lose
        self._context: Context = zmq.Context()
        self._gate = Gatekeeper(self._context, key)
        self._near = listening_socket(self._context, key, encrypt=False)
        self._near.bind("tcp://127.0.0.1:*")
        self._far = calling_socket(self._context, key, encrypt=False)
        self._far.connect(address)
        endpoint = self._near.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.address = endpoint.decode().rstrip("\0")
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        for socket in (self._near, self._far, self._gate):
            socket.close()
        self._context.term()

    def _run(self) -> None:
        route: memoryview | None = None
        while not self._ending.is_set():
            if self._gate.socket.poll(1):
                self._gate.answer()
            if self._near.poll(5) and (parts := receive(self._near)) is not None:
                route = parts[0]
                send(self._far, list(parts[1:]))
            if self._far.poll(5) and (answer := receive(self._far)) is not None:
                self._pass_on(route, answer)

    def _pass_on(self, route: memoryview | None, answer: Sequence[memoryview]) -> None:
        from heterps.wire.frames import decode_header

        if route is not None and not self._lose(decode_header(answer[0]).verb):
            send(self._near, [route, *answer])
