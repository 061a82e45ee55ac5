"""Starts the processes of a run, tells them what to do, hears what came of it, and ends them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from heterps.errors import HeterPSError, InputError, ProcessError, WorkerLostError
from heterps.ps.client import Client
from heterps.ps.processes import clear_registrations
from heterps.runtime.building import table_spec
from heterps.runtime.code import read_code
from heterps.runtime.control import Desk, Message
from heterps.runtime.devices import turns
from heterps.runtime.engines.base import Engine
from heterps.runtime.layout import Layout
from heterps.runtime.prepare import Setup
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.saved_model import TABLES, save_dense
from heterps.runtime.server_group import ServerGroup
from heterps.runtime.snapshot import Snapshots
from heterps.runtime.socket_folder import SocketFolder
from heterps.runtime.specs import Sites, nearest, server_spec, units_of, worker_name, worker_spec
from heterps.runtime.stop import StoppedError
from heterps.runtime.watch import Watch
from heterps.wire.wake import Wake

_START_S = 120.0
_LOOK_S = 0.2
_REASON_S = 1.5  # how long a root cause may come after what followed from it
_T = TypeVar("_T")

OnProgress = Callable[[int, Mapping[str, Any]], None]  # worker's number and what it says


class Coordinator:
    """The processes of one generation of a run. ``hear`` gets what workers report on their way.
    Once ``stop`` answers true, whatever waits for processes raises StoppedError."""

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        engine: Engine,
        hear: OnProgress = lambda worker, fields: None,
        *,
        generation: int = 0,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stop = stop
        self._setup = setup
        self._folder = folder
        self._engine = engine
        self._hear = hear
        self._generation = generation
        self._layout = setup.layout
        self._encrypt = setup.job.security.encrypt
        self._watch = Watch()
        self._wake = Wake()
        self._desk = Desk(folder.key, generation, encrypt=self._encrypt, wake=self._wake)
        self._closing = ExitStack()
        self.noticed_at: float | None = None  # that something has failed, by the clock on the wall

    @property
    def layout(self) -> Layout:
        """What is trained on changes with each arrival where data are followed."""
        return self._layout

    @property
    def names(self) -> list[str]:
        """Of the workers."""
        return [worker_name(place) for place in self._layout.workers]

    def start(self) -> None:
        """Returns when all processes are there and connected."""
        self._closing.callback(self._wake.close)
        self._closing.callback(self._desk.close)
        sockets = self._closing.enter_context(SocketFolder(self._folder.path))
        units = units_of(self._setup.job, self._layout)
        self._sites = Sites.found(self._engine, sockets, units)
        control = [self._desk.listen(address) for address in self._sites.control()]
        self._start_processes(control)
        self._servers = ServerGroup(self._watch.servers, self._sites, self._folder.path)
        self.client = self._connect_to_servers()
        self._await_beats()
        self._introduce()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)

    def close(self, *, failed: bool = False) -> None:
        """Ends all processes: in order after success, quickly after a failure. A Ctrl-C may come at
        any point: it leaves out no step but the one that is under way."""
        with ExitStack() as steps:
            steps.callback(self._closing.close)
            steps.callback(clear_registrations, self._folder.path)
            steps.callback(self._engine.close, grace_s=2.0 if failed else 10.0)
            # The work is done; who is still there is ended then.
            with suppress(HeterPSError):
                if not failed:
                    self.tell_all("stop")
                    self._await_ends()

    def tell_all(self, kind: str, fields: Mapping[str, Any] | None = None) -> None:
        for worker in range(len(self._watch.workers)):
            self._tell(worker, kind, fields)

    def gather(
        self, kind: str, timeout_s: float | None = None, progress_s: float | None = None
    ) -> dict[int, Message]:
        """One answer of that kind from every worker; progress is passed on meanwhile, and expected
        in every ``progress_s``."""
        workers = range(len(self._watch.workers))
        return self.gather_from(workers, kind, timeout_s, progress_s)

    def gather_from(
        self,
        workers: range | list[int],
        kind: str,
        timeout_s: float | None = None,
        progress_s: float | None = None,
    ) -> dict[int, Message]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        found: dict[int, Message] = {}
        while len(found) < len(workers):
            for message in self.receive(_LOOK_S):
                assert message.kind == kind, f"{message.kind} while waiting for {kind}"
                found[message.sender] = message
            if progress_s is not None:
                self.expect_progress(progress_s)
            if deadline is not None and time.monotonic() > deadline:
                late = next(worker for worker in workers if worker not in found)
                problem = f"gave no sign of '{kind}' in {timeout_s:g} s"
                raise ProcessError(self.names[late], problem, "stuck")
        return found

    def receive(self, timeout_s: float) -> list[Message]:
        """Answers to commands; raises for whatever has failed."""
        if self._stop():
            raise StoppedError
        try:
            messages = self._desk.receive(timeout_s)
        except WorkerLostError as error:
            raise self._reason(None, error) from None
        answers = []
        for message in messages:
            if message.kind == "beat":
                self._watch.heard(message.sender, int(message.fields["progress"]))
            elif message.kind == "progress":
                self._hear(message.sender, message.fields)
            elif message.kind == "failed":
                raise self._reason(message, None)
            else:
                answers.append(message)
        self._look_after()
        return answers

    def follow(self, layout: Layout, files: Sequence[str]) -> None:
        """Tells everyone what is trained on from now on."""
        self._layout = layout
        about = {"plan": asdict(layout.train), "batches": layout.batches}
        text = json.dumps(list(files)).encode()  # of any length, so not in the fields
        names = {"files": torch.frombuffer(bytearray(text), dtype=torch.uint8)}
        for worker in range(len(self._watch.workers)):
            self._tell(worker, "follow", about, names)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Gives every worker the weights of its layers, and the optimizer's state of each."""
        for worker, (stage, _) in enumerate(self._layout.workers):
            own = self._layout.stages[stage]
            names = tuple(f"{name}." for name in self._setup.chain.names[own.first : own.last + 1])
            part = {
                name: tensor
                for name, tensor in state.items()
                if name.removeprefix("optimizer/").startswith(names)
            }
            self._tell(worker, "load", {}, part)
        self.gather("loaded", _START_S)

    def save(self, name: str, about: Mapping[str, Any]) -> None:
        """The model as it is between two segments, as ``name`` in the run folder."""
        weights = {n: t for n, t in self.state().items() if not n.startswith("optimizer/")}
        with self._folder.saving(name, about) as folder:
            save_dense(folder, weights)
            tables = list(self._setup.chain.tables)
            self.while_watching(lambda: self.client.save(folder / TABLES, tables, aside=True))

    def state(self) -> dict[str, Tensor]:
        """Of all layers, by their names: weights, and what optimizers keep."""
        first = [n for n, (_, replica) in enumerate(self._layout.workers) if replica == 0]
        for worker in first:
            self._tell(worker, "state")
        answers = self.gather_from(first, "state", _START_S)
        return {name: t for answer in answers.values() for name, t in answer.tensors.items()}

    def while_watching(self, work: Callable[[], _T]) -> _T:
        """Does what may wait for the parameter servers in a thread, and looks after all processes
        meanwhile; raises what it raises, or what has failed."""
        done: Future[_T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it reaches whoever waits
                done.set_exception(error)

        done.add_done_callback(lambda _: self._wake.set())
        threading.Thread(target=run, name="servers", daemon=True).start()
        while not done.done():
            self.receive(_LOOK_S)
        return done.result()

    def _start_processes(self, control: list[str]) -> None:
        clear_registrations(self._folder.path)
        common = (self._setup.job, self._folder.key, self._generation)
        for shard in range(self._setup.job.servers.count):
            spec = server_spec(*common, shard, self._sites)
            self._watch.servers.append(self._engine.start(spec))
        for number, place in enumerate(self._layout.workers):
            threads = self._setup.type_of(place[0]).threads
            spec = worker_spec(*common, number, place, control, self._sites, threads)
            self._watch.workers.append(self._engine.start(spec))

    def _connect_to_servers(self) -> Client:
        self._servers.await_all(_START_S, lambda: self.receive(_LOOK_S / 4))
        client = self._client()
        self.while_watching(lambda: client.look_for_disk(self._folder.path, *self._on_disk()))
        cold = self._servers.cold_folder(self._setup.job, client, self._closing)
        for name, dim in self._setup.chain.tables.items():
            spec = table_spec(self._setup.job, name, dim, cold)
            self.while_watching(partial(client.create_table, name, spec))
        # Pings have connections of their own, where nothing that takes long is under way.
        self._watch.client = self._client(retries=0)
        return client

    def _on_disk(self) -> list[Path]:
        """The folders of snapshots that are not at a URL."""
        held = Snapshots.of(self._folder.path, self._setup.job).everywhere()
        return [snapshots.folder for snapshots in held if isinstance(snapshots.folder, Path)]

    def _client(self, **options: Any) -> Client:
        options |= {"generation": self._generation, "encrypt": self._encrypt}
        client = Client(self._servers.addresses_for(), self._folder.key, **options)
        self._closing.callback(client.close)
        return client

    def _await_beats(self) -> None:
        """Until every worker has been heard of."""
        deadline = time.monotonic() + _START_S
        workers = len(self._watch.workers)
        while len(self._watch.beats) < workers:
            self.receive(_LOOK_S)
            if time.monotonic() > deadline:
                late = next(n for n in range(workers) if n not in self._watch.beats)
                raise ProcessError(self.names[late], f"did not start in {_START_S:g} s", "stuck")

    def _introduce(self) -> None:
        """Tells everyone what to be, and then who the others are."""
        job = self._setup.job.document()
        job.pop("plan", None)
        job.pop("profile", None)
        layout = replace(self._layout, far=self._far())
        common = {"job": job, "layout": layout.as_fields(), "code": read_code(job)}
        turn_of = self._turns()
        for worker, (stage, _) in enumerate(self._layout.workers):
            threads = self._setup.type_of(stage).threads
            own = {"threads": threads, "servers": self._servers.addresses_for(self.names[worker])}
            own |= {"together": self._sum_in_memory(stage), "turn": turn_of[worker]}
            self._tell(worker, "prepare", {**common, **own})
        ready = self.gather("ready", _START_S)
        meetings = [""] * len(self._layout.stages)
        for worker, (stage, replica) in enumerate(self._layout.workers):
            if replica == 0:
                meetings[stage] = ready[worker].fields["meeting"]
        for worker, name in enumerate(self.names):
            addresses = [
                nearest(ready[n].fields["addresses"], near=self._sites.near(name, other))
                for n, other in enumerate(self.names)
            ]
            self._tell(worker, "connect", {"addresses": addresses, "meetings": meetings})
        self.gather("connected", _START_S)

    def _far(self) -> bool:
        """Whether any two that exchange activations are on different hosts."""
        return any(
            not self._sites.near(worker_name(one), worker_name(other))
            for one in self._layout.workers
            for other in self._layout.workers
            if other[0] == one[0] + 1
        )

    def _turns(self) -> list[int]:
        """Of the workers at the devices of their hosts."""
        devices = [self._setup.type_of(stage).device for stage, _ in self._layout.workers]
        hosts = [self._sites.of[name].host for name in self.names]
        return turns(list(zip(hosts, devices, strict=True)))

    def _sum_in_memory(self, stage: int) -> bool:
        """Whether the replicas of a stage are on one host, and have their gradients in memory."""
        first, *others = [worker_name(at) for at in self._layout.workers if at[0] == stage]
        near = all(self._sites.near(first, other) for other in others)
        return near and self._setup.type_of(stage).device == "cpu"

    def _tell(
        self,
        worker: int,
        kind: str,
        fields: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> None:
        try:
            self._desk.send(worker, kind, fields, tensors)
        except WorkerLostError as error:
            raise self._reason(None, error) from None

    def expect_progress(self, within_s: float) -> None:
        """Raises ProcessError when no worker has got on for so long."""
        self._watch.expect_progress(within_s)

    def begin_work(self) -> None:
        """Progress is expected from now on."""
        self._watch.begin_work()

    def _look_after(self) -> None:
        try:
            self._watch.look()
        except ProcessError as error:
            raise self._reason(None, error) from None

    def _reason(self, failed: Message | None, seen: HeterPSError | None) -> HeterPSError:
        """What began it: one process's failure makes others fail that miss it, so one that was
        killed or stopped counts first, and then those that speak of their own fault."""
        self.noticed_at = self.noticed_at or time.time()
        worst = failed
        deadline = time.monotonic() + _REASON_S
        while (worst is None or worst.fields["follows"]) and time.monotonic() < deadline:
            cause = self._watch.cause()
            if cause is not None:
                return cause
            if isinstance(seen, ProcessError) and seen.kind == "frozen":
                return seen
            try:
                messages = self._desk.receive(_LOOK_S)
            except WorkerLostError as error:
                seen = seen or error
                time.sleep(_LOOK_S)  # its exit is seen in a moment
                continue
            for message in messages:
                if message.kind == "failed" and (worst is None or worst.fields["follows"]):
                    worst = message
        if worst is not None:
            return self._said(worst)
        return self._gone(seen)

    def _said(self, failed: Message) -> HeterPSError:
        problem, name = failed.fields["problem"], self.names[failed.sender]
        path = self._folder.logs / f"{name}.traceback.txt"
        path.write_text(failed.fields["traceback"], encoding="utf-8")
        if failed.fields["input"]:
            where, _, said = problem.partition(": ")
            return InputError(where, f"{said} ({name})")
        problem = f"failed: {problem} (traceback: {path})"
        follows = failed.fields["follows"]
        return ProcessError(name, problem, "lost" if follows else "wrong")

    def _gone(self, seen: HeterPSError | None) -> HeterPSError:
        gone = self._watch.gone()
        if gone is not None:
            return gone
        if isinstance(seen, WorkerLostError):
            return ProcessError(self.names[seen.replica], f"was lost: {seen.problem}", "lost")
        assert seen is not None
        return seen

    def _await_ends(self) -> None:
        deadline = time.monotonic() + 10.0
        while any(handle.poll() is None for handle in self._watch.workers):
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
