"""Workers that compute next to nothing, to test what goes on between them."""

from __future__ import annotations

import multiprocessing
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heterps.runtime.channel import FORWARD, Arrived, Mesh
from heterps.runtime.pipeline import Do, ReplicaProgram, Routing, Task


class Line(NamedTuple):
    """How a pipeline of toy workers is laid out."""

    routing: Routing
    batches: int
    micro_batches: int
    values: int
    transport: str
    options: dict[str, Any]

    def batch(self, number: int) -> range:
        return range(number * self.micro_batches, (number + 1) * self.micro_batches)


class Report(NamedTuple):
    """What one worker did, in order, and the most memory that it needed."""

    forward: list[int]
    backward: list[int]
    most_in_flight: int
    shared_bytes: int
    resident_bytes: int


def process_context() -> BaseContext:
    """Children of a process that has imported torch already, so that many start quickly."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["heterps.testing.meshes"])
    return context


@contextmanager
def echoing(mesh: Mesh) -> Iterator[None]:
    """A thread that sends back what comes."""
    ending = threading.Event()

    def run() -> None:
        while not ending.is_set():
            for arrived in mesh.receive(0.02):
                mesh.send_back(arrived.replica, arrived.micro_batch, arrived.tensors)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def address_for(transport: str, folder: Path, name: str) -> str:
    return f"ipc://{folder}/{name}.sock" if transport == "ipc" else "tcp://127.0.0.1:*"


def work(line: Line, key: bytes, me: tuple[int, int], folder: Path, book: Any) -> None:
    """A worker process: ``book`` is its end of a pipe to who started it."""
    torch.set_num_threads(1)
    with Mesh(key, 1, me, **line.options) as mesh:
        book.send(mesh.listen(address_for(line.transport, folder, f"{me[0]}-{me[1]}")))
        mesh.connect(book.recv())
        book.send(ToyWorker(line, me, mesh).run())
        book.recv()


class ToyWorker:
    """Adds one to ``x`` going forward and two to its gradient going back; the last stage checks
    that every stage was passed, the first that every gradient came all the way.
    """

    def __init__(self, line: Line, me: tuple[int, int], mesh: Mesh) -> None:
        self._line = line
        self._stage, self._replica = me
        self._mesh = mesh
        self._program = ReplicaProgram(
            line.routing, self._stage, self._replica, line.batch, end_batch=line.batches
        )
        self._first = self._stage == 0
        self._last = self._stage == line.routing.stages - 1
        self._here: dict[tuple[str, int], Arrived] = {}
        self._report = Report([], [], 0, 0, 0)
        self._most = 0

    def run(self, patience_s: float = 60.0) -> Report:
        if self._first:
            for micro_batch in range(self._line.batches * self._line.micro_batches):
                if self._line.routing.replica(0, micro_batch) == self._replica:
                    self._program.input_arrived(micro_batch)
        deadline = time.monotonic() + patience_s
        while not self._program.finished:
            task = self._program.take()
            if task is not None:
                self._do(task)
                self._most = max(self._most, self._program.in_flight)
            self._note(self._mesh.receive(0.0 if task is not None else 0.5))
            assert time.monotonic() < deadline, f"stuck: {self._stage} {self._replica}"
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        shared = self._mesh.shared_bytes
        return self._report._replace(
            most_in_flight=self._most, shared_bytes=shared, resident_bytes=resident
        )

    def _note(self, arrived: list[Arrived]) -> None:
        for one in arrived:
            self._here[one.kind, one.micro_batch] = one
            if one.kind == FORWARD:
                self._program.input_arrived(one.micro_batch)
            else:
                self._program.gradient_arrived(one.micro_batch)

    def _do(self, task: Task) -> None:
        match task.do:
            case Do.FORWARD:
                self._forward(task.number)
            case Do.BACKWARD:
                self._backward(task.number)

    def _forward(self, number: int) -> None:
        self._report.forward.append(number)
        if self._first:
            x = torch.full((self._line.values,), float(number))
        else:
            x = self._here["forward", number].tensors["x"]
        if self._last:
            assert bool((x == number + self._stage).all()), f"micro-batch {number} came changed"
        else:
            to = self._line.routing.replica(self._stage + 1, number)
            self._mesh.send_forward(to, number, {"x": x + 1, "ids": torch.tensor([number])})

    def _backward(self, number: int) -> None:
        self._report.backward.append(number)
        self._here.pop(("forward", number), None)
        gradient = torch.full((self._line.values,), -float(number))
        if not self._last:
            gradient = self._here.pop(("back", number)).tensors["x"]
        if self._first:
            passed = 2 * (self._line.routing.stages - 1)
            assert bool((gradient == passed - number).all()), f"gradient {number} came changed"
        else:
            to = self._line.routing.replica(self._stage - 1, number)
            self._mesh.send_back(to, number, {"x": gradient + 2})


def run_line(line: Line, key: bytes, folder: Path) -> dict[tuple[int, int], Report]:
    """Every worker in a process of its own; what each reports."""
    context = process_context()
    places = [(s, r) for s, count in enumerate(line.routing.replicas) for r in range(count)]
    books = {}
    processes = []
    for me in places:
        books[me], theirs = context.Pipe()
        start: Callable[..., Any] = context.Process  # type: ignore[attr-defined]
        process = start(target=work, args=(line, key, me, folder, theirs))
        process.start()
        theirs.close()
        processes.append(process)
    try:
        addresses = {me: books[me].recv() for me in places}
        for stage, replica in places:
            after = stage + 1
            peers: tuple[int, ...] = ()
            if after < line.routing.stages:
                peers = line.routing.peers(stage, replica, after)
            books[stage, replica].send({(after, peer): addresses[after, peer] for peer in peers})
        reports = {me: books[me].recv() for me in places}
        for me in places:
            books[me].send("enough")
    finally:
        for process in processes:
            process.join(20)
            process.kill()
    return reports
