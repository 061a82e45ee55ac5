"""A parameter server: one process for one shard, around one event loop.

``python -m heterps.ps.server --run FOLDER --shard I --shards N`` is what `start_servers` starts.
Pulls and pushes run inside the loop, which is as parallel as the store is; only saving and
loading, which take as long as the disk, have a thread of their own.
"""

from __future__ import annotations

import math
import os
import resource
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq

from heterps.errors import InputError, ServerError, WireError
from heterps.ps.background import Background
from heterps.ps.peers import CallLog, Peers, wrong_generation
from heterps.ps.protocol import DONE, FAILED, ONCE, PATIENT, error_fields
from heterps.ps.requests import Answer, Request
from heterps.ps.scratch import Scratch
from heterps.ps.service import Service, as_document
from heterps.wire.frames import MAX_BUFFER_BYTES
from heterps.wire.sessions import Parts, refusal
from heterps.wire.sockets import Context, Gatekeeper, bind_problem, listening_socket, receive, send

_SWEEP_S = 1.0
_LONGEST_S = 24 * 3600.0
_BURST = 64


class Server:
    """One shard. ``addresses`` are known once it is bound; ``run`` serves until ``stop``."""

    def __init__(
        self,
        key: bytes,
        shard: int = 0,
        shards: int = 1,
        *,
        generation: int = 0,
        encrypt: bool = False,
        folder: Path | None = None,
    ) -> None:
        """``folder`` is for files on their way to a client that shares no disk with it."""
        if not 0 <= shard < shards:
            raise InputError("shard", f"expected 0 to {shards - 1}, got {shard}")
        self.instance = secrets.token_bytes(16)
        self.addresses: list[str] = []
        self.refused = 0
        about = {"instance": self.instance, "shard": shard, "shards": shards}
        self._scratch = Scratch(folder)
        self._service = Service(shard, shards, self._scratch)
        self._peers = Peers(key, generation, about)
        self._log = CallLog()
        self._background = Background(self._service, self._scratch)
        self._held: list[Request] = []
        self._started = time.monotonic()
        self._calls = 0
        self._stopping = False
        self._context: Context = zmq.Context()
        self._gate = Gatekeeper(self._context, key)
        self._socket = listening_socket(self._context, key, encrypt=encrypt)

    def bind(self, address: str) -> None:
        """``ipc://path`` or ``tcp://host:port`` (port ``*``: any that is free)."""
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            raise ServerError(bind_problem(address, error)) from None
        bound = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        self.addresses.append(bound.decode().rstrip("\0"))

    def stop(self) -> None:
        """Ends ``run`` soon; safe in a signal handler and from any thread."""
        self._stopping = True
        self._background.wake.set()

    def run(self) -> None:
        poller = zmq.Poller()
        for source in (self._socket, self._gate.socket, self._background.wake.fileno()):
            poller.register(source, zmq.POLLIN)
        next_sweep = 0.0
        try:
            while not self._stopping:
                events = dict(poller.poll(self._patience_ms()))
                if self._gate.socket in events:
                    self._gate.answer()
                if self._background.wake.fileno() in events:
                    self._finish_background()
                if self._socket in events:
                    self._receive_some()
                self._answer_ripe()
                if time.monotonic() >= next_sweep:
                    self._peers.forget_silent(time.monotonic())
                    next_sweep = time.monotonic() + _SWEEP_S
        finally:
            self.close()

    def close(self) -> None:
        self._background.close()
        self._socket.close()
        self._gate.close()
        self._context.term()
        self._service.close()

    def _patience_ms(self) -> int:
        # The end of a load, for which waiting pulls wait as well, comes by the background's handle.
        expiry = None if self._background.loading else self._service.next_expiry()
        wait = _SWEEP_S if expiry is None else min(_SWEEP_S, expiry - time.monotonic())
        return math.ceil(max(0.0, wait) * 1000)

    def _receive_some(self) -> None:
        """A few messages at a time, so that other events are not starved."""
        for _ in range(_BURST):
            parts = receive(self._socket)
            if parts is None:
                return
            self._receive(bytes(parts[0]), parts[1:])

    def _receive(self, route: bytes, parts: Sequence[memoryview]) -> None:
        try:
            if self._peers.is_hello(parts):
                self._send(route, self._peers.greet(parts))
                return
            if sum(part.nbytes for part in parts[2:]) > MAX_BUFFER_BYTES:
                raise WireError(f"a message of more than {MAX_BUFFER_BYTES} bytes")
            peer, header = self._peers.open(parts)
        except WireError as error:
            self.refused += 1
            self._send(route, refusal(str(error), self._peers.generation))
            return
        patience = header.fields.get("patience_s")
        wait = patience if isinstance(patience, int | float) and patience > 0 else 0.0
        expires = time.monotonic() + min(wait, _LONGEST_S)
        self._serve(Request(peer, route, header, expires))

    def _serve(self, request: Request) -> None:
        try:
            answer = self._answer(request)
            if answer is not None:
                self._done(request, answer)
        except Exception as error:  # noqa: BLE001 - the border of the process: it is answered
            self._fail(request, error)

    def _answer(self, request: Request) -> Answer | None:
        """The answer, or None when it comes later. What was done before is not done again."""
        generation = request.header.generation
        request.check_number()
        if generation != self._peers.generation:
            raise ServerError(wrong_generation(generation, self._peers.generation))
        if self._background.loading and request.verb not in ("ping", "stats", "load"):
            self._held.append(request)
            return None
        if request.verb not in ONCE:
            return self._perform(request)
        known: Answer | None = self._log.find(request.peer.client, request.sequence)
        if known is not None:
            return known
        if self._background.takes_over(request):
            return None
        answer = self._perform(request)
        if answer is not None:
            self._log.add(request.peer.client, request.sequence, answer)
        return answer

    def _perform(self, request: Request) -> Answer | None:
        self._calls += 1
        match request.verb:
            case "attach":
                size = request.integer("size_bytes")
                request.peer.attach(request.integer("segment"), Path(request.text("path")), size)
            case "detach":
                request.peer.segments.pop(request.integer("segment"), None)
            case "bye":
                self._peers.forget(request.peer)
            case "stats":
                return as_document(self._stats())
            case "advance":
                self._advance(request.integer("generation"))
            case "sees" | "fetch" | "put" | "forget":
                return self._scratch.handle(request)
            case "capture":
                self._background.capture(request)
            case "conclude":
                self._background.conclude(request)
            case verb if verb in PATIENT:
                self._background.start(request)
                return None
            case _:
                return self._service.handle(request)
        return Answer()

    def _advance(self, generation: int) -> None:
        """Takes the next generation: nobody of the last one can change anything from here on."""
        if generation <= self._peers.generation:
            raise ServerError(wrong_generation(generation, self._peers.generation))
        self._service.drop_waiting()
        self._peers.forget_all(generation)

    def _answer_ripe(self) -> None:
        if self._background.loading:
            return
        for request, outcome in self._service.ripe(time.monotonic()):
            if isinstance(outcome, Answer):
                self._done(request, outcome)
            else:
                self._fail(request, outcome)

    def _finish_background(self) -> None:
        for request, outcome in self._background.finished():
            if isinstance(outcome, Answer):
                self._log.add(request.peer.client, request.sequence, outcome)
                self._done(request, outcome)
            else:
                self._fail(request, outcome)
        if self._held and not self._background.loading:
            held, self._held = self._held, []
            for request in held:
                self._serve(request)

    def _done(self, request: Request, answer: Answer) -> None:
        fields = {**answer.fields, "call": request.number}
        try:
            parts = request.peer.session.seal(DONE, fields, answer.buffers)
        except WireError as error:
            self._fail(request, error)
        else:
            self._send(request.route, parts)

    def _fail(self, request: Request, error: Exception) -> None:
        fields = {**error_fields(error), "call": request.number}
        self._send(request.route, request.peer.session.seal(FAILED, fields))

    def _send(self, route: bytes, parts: Parts) -> None:
        """To a client that has gone, or reads nothing, an answer is dropped."""
        try:
            send(self._socket, [route, *parts])
        except zmq.ZMQError:
            self.refused += 1

    def _stats(self) -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "shard": self._service.shard,
            "shards": self._service.shards,
            "pid": os.getpid(),
            "generation": self._peers.generation,
            "addresses": self.addresses,
            "uptime_s": time.monotonic() - self._started,
            "clients": len(self._peers),
            "calls": self._calls,
            "refused": self.refused,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "resident_bytes": _resident_bytes(),
            "tables": {name: hosted.table.stats() for name, hosted in self._service.tables.items()},
            "tensors": {name: list(t.shape) for name, t in self._service.tensors.items()},
        }


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    from heterps.ps.processes import main

    raise SystemExit(main())
