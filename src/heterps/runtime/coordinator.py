"""Starts the processes of a run, tells them what to do, hears what came of it, and ends them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import Tensor

from heterps.errors import HeterPSError, InputError, ProcessError, WorkerLostError
from heterps.ps.client import Client
from heterps.ps.processes import FOLDER, clear_registrations, registration_path, registrations
from heterps.runtime.building import table_spec
from heterps.runtime.control import Desk, Message
from heterps.runtime.engines.base import Engine, Handle, ProcessSpec
from heterps.runtime.failure import FROZEN_S
from heterps.runtime.prepare import Setup
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.saved_model import TABLES, save_dense
from heterps.wire.sockets import MAX_IPC_PATH

_START_S = 120.0
_LOOK_S = 0.2
_REASON_S = 3.0  # how long a root cause may come after what followed from it
_SOCKETS = "sockets"
_ASIDE = "heterps-"

OnProgress = Callable[[int, Mapping[str, Any]], None]  # worker's number and what it says


class Coordinator:
    """The processes of one generation of a run. ``hear`` gets what workers report on their way."""

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        engine: Engine,
        hear: OnProgress = lambda worker, fields: None,
        *,
        generation: int = 0,
    ) -> None:
        self._setup = setup
        self._folder = folder
        self._engine = engine
        self._hear = hear
        self._generation = generation
        self._layout = setup.layout
        self._encrypt = setup.job.security.encrypt
        self._handles: list[Handle] = []
        self._servers: list[Handle] = []
        self._desk = Desk(folder.key, generation, encrypt=self._encrypt)
        self._closing = ExitStack()
        self._beats: dict[int, _Beat] = {}
        self._pings = _Pings()
        self._watching = False
        self._progressed = 0.0  # when any worker last got on

    @property
    def names(self) -> list[str]:
        """Of the workers."""
        return [f"stage-{stage}-replica-{replica}" for stage, replica in self._layout.workers]

    def start(self) -> None:
        """Returns when all processes are there and connected."""
        self._closing.callback(self._desk.close)
        sockets = self._closing.enter_context(_sockets(self._folder.path))
        control = self._desk.listen(f"ipc://{sockets}/control")
        self._start_servers()
        for number, name in enumerate(self.names):
            self._start_worker(number, name, control, sockets)
        self.client = self._connect_to_servers()
        self._await_beats()
        self._introduce()
        self._watching = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(failed=kind is not None)

    def close(self, *, failed: bool = False) -> None:
        """Ends all processes: in order after success, quickly after a failure."""
        try:
            if not failed:
                self.tell_all("stop")
                self._await_ends()
        except HeterPSError:
            pass  # the work is done; who is still there is ended now
        finally:
            self._engine.close(grace_s=2.0 if failed else 10.0)
            clear_registrations(self._folder.path, self._setup.job.servers.count)
            self._closing.close()

    def tell_all(self, kind: str, fields: Mapping[str, Any] | None = None) -> None:
        for worker in range(len(self._handles)):
            self._tell(worker, kind, fields)

    def gather(self, kind: str, timeout_s: float | None = None) -> dict[int, Message]:
        """One answer of that kind from every worker; progress is passed on meanwhile."""
        return self.gather_from(range(len(self._handles)), kind, timeout_s)

    def gather_from(
        self, workers: range | list[int], kind: str, timeout_s: float | None = None
    ) -> dict[int, Message]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        found: dict[int, Message] = {}
        while len(found) < len(workers):
            for message in self.receive(_LOOK_S):
                assert message.kind == kind, f"{message.kind} while waiting for {kind}"
                found[message.sender] = message
            if deadline is not None and time.monotonic() > deadline:
                late = next(worker for worker in workers if worker not in found)
                problem = f"gave no sign of '{kind}' in {timeout_s:g} s"
                raise ProcessError(self.names[late], problem)
        return found

    def receive(self, timeout_s: float) -> list[Message]:
        """Answers to commands; raises for whatever has failed."""
        try:
            messages = self._desk.receive(timeout_s)
        except WorkerLostError as error:
            raise self._reason(None, error) from None
        answers = []
        for message in messages:
            if message.kind == "beat":
                self._beat(message)
            elif message.kind == "progress":
                self._hear(message.sender, message.fields)
            elif message.kind == "failed":
                raise self._reason(message, None)
            else:
                answers.append(message)
        self._look_after()
        return answers

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
            self.client.save(folder / TABLES, list(self._setup.chain.tables))

    def state(self) -> dict[str, Tensor]:
        """Of all layers, by their names: weights, and what optimizers keep."""
        first = [n for n, (_, replica) in enumerate(self._layout.workers) if replica == 0]
        for worker in first:
            self._tell(worker, "state")
        answers = self.gather_from(first, "state", _START_S)
        return {name: t for answer in answers.values() for name, t in answer.tensors.items()}

    def _start_servers(self) -> None:
        own = self._setup.job.servers
        path = self._folder.path
        (path / FOLDER).mkdir(exist_ok=True)
        for shard in range(own.count):
            registration_path(path, shard).unlink(missing_ok=True)
            place = ["--shard", str(shard), "--shards", str(own.count)]
            options = ["--run", str(path), "--generation", str(self._generation)]
            options += ["--encrypt"] if self._encrypt else []
            spec = ProcessSpec(
                f"server-{shard}",
                "heterps.ps.server",
                (*place, *options),
                threads=own.threads,
            )
            self._servers.append(self._engine.start(spec))

    def _connect_to_servers(self) -> Client:
        for shard, handle in enumerate(self._servers):
            there = registration_path(self._folder.path, shard)
            handle.wait_until(there.exists, _START_S)
        client = Client.of_run(self._folder.path, generation=self._generation)
        self._closing.callback(client.close)
        cold = self._folder.path / "cold"
        job = self._setup.job
        if any(entry.memory_gib is not None for entry in job.tables.values()):
            cold.mkdir(exist_ok=True)
            self._closing.callback(shutil.rmtree, cold, ignore_errors=True)
        for name, dim in self._setup.chain.tables.items():
            client.create_table(name, table_spec(job, name, dim, str(cold)))
        return client

    def _start_worker(self, number: int, name: str, control: str, sockets: Path) -> None:
        stage, _ = self._layout.workers[number]
        arguments = [
            *("--run", str(self._folder.path), "--name", name, "--number", str(number)),
            *("--control", control, "--listen", f"ipc://{sockets}/{number}"),
            *("--generation", str(self._generation)),
            *(["--encrypt"] if self._encrypt else []),
        ]
        threads = self._setup.type_of(stage).threads
        spec = ProcessSpec(name, "heterps.runtime.worker", tuple(arguments), threads=threads)
        self._handles.append(self._engine.start(spec))

    def _await_beats(self) -> None:
        """Until every worker has been heard of."""
        deadline = time.monotonic() + _START_S
        while len(self._beats) < len(self._handles):
            self.receive(_LOOK_S)
            if time.monotonic() > deadline:
                late = next(n for n in range(len(self._handles)) if n not in self._beats)
                raise ProcessError(self.names[late], f"did not start in {_START_S:g} s")

    def _introduce(self) -> None:
        """Tells everyone what to be, and then who the others are."""
        job = self._setup.job.document()
        job.pop("plan", None)
        job.pop("profile", None)
        servers = [found.address for found in registrations(self._folder.path)]
        common = {"job": job, "layout": self._layout.as_fields(), "servers": servers}
        for worker, (stage, _) in enumerate(self._layout.workers):
            threads = self._setup.type_of(stage).threads
            self._tell(worker, "prepare", {**common, "threads": threads})
        ready = self.gather("ready", _START_S)
        addresses = [ready[worker].fields["address"] for worker in range(len(self._handles))]
        meetings = [""] * len(self._layout.stages)
        for worker, (stage, replica) in enumerate(self._layout.workers):
            if replica == 0:
                meetings[stage] = ready[worker].fields["meeting"]
        self.tell_all("connect", {"addresses": addresses, "meetings": meetings})
        self.gather("connected", _START_S)

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
        silent = time.monotonic() - self._progressed
        if silent > within_s:
            late = min(self._beats, key=lambda worker: self._beats[worker].progressed)
            problem = f"makes no progress, nor does any other, for {silent:.0f} s"
            raise ProcessError(self.names[late], problem, "stuck")

    def begin_work(self) -> None:
        """Progress is expected from now on."""
        self._progressed = time.monotonic()

    def _beat(self, message: Message) -> None:
        now, progress = time.monotonic(), int(message.fields["progress"])
        last = self._beats.get(message.sender)
        if last is None or progress != last.progress:
            self._progressed = now
        progressed = last.progressed if last and last.progress == progress else now
        self._beats[message.sender] = _Beat(now, progress, progressed)

    def _look_after(self) -> None:
        """Raises for a process that has ended or gives no sign of life."""
        for name, handle in [*zip(self.names, self._handles, strict=False), *self._named_servers()]:
            if handle.poll() is not None:
                problem = f"ended: {handle.last_words()}"
                raise self._reason(None, ProcessError(name, problem, "ended"))
        if not self._watching:
            return
        now = time.monotonic()
        for worker, beat in self._beats.items():
            if now - beat.heard > FROZEN_S:
                problem = f"gives no sign of life for {now - beat.heard:.1f} s"
                raise ProcessError(self.names[worker], problem, "frozen")
        self._pings.look(self.client, now)

    def _named_servers(self) -> list[tuple[str, Handle]]:
        return [(handle.spec.name, handle) for handle in self._servers]

    def _reason(self, failed: Message | None, seen: HeterPSError | None) -> HeterPSError:
        """What began it: one process's failure makes others fail that miss it, so those that speak
        of their own fault count first."""
        worst = failed
        deadline = time.monotonic() + _REASON_S
        while (worst is None or worst.fields["follows"]) and time.monotonic() < deadline:
            for name, handle in self._named_servers():
                if handle.poll() is not None:
                    return ProcessError(name, f"ended: {handle.last_words()}", "ended")
            try:
                messages = self._desk.receive(_LOOK_S)
            except WorkerLostError as error:
                seen = seen or error
                break
            for message in messages:
                if message.kind == "failed" and (worst is None or worst.fields["follows"]):
                    worst = message
        if worst is not None:
            return self._said(worst)
        return self._gone(seen)

    def _said(self, failed: Message) -> HeterPSError:
        problem, path = failed.fields["problem"], failed.fields["traceback"]
        if failed.fields["input"]:
            where, _, said = problem.partition(": ")
            return InputError(where, f"{said} ({self.names[failed.sender]})")
        problem = f"failed: {problem} (traceback: {path})"
        follows = failed.fields["follows"]
        return ProcessError(self.names[failed.sender], problem, "lost" if follows else "wrong")

    def _gone(self, seen: HeterPSError | None) -> HeterPSError:
        for name, handle in zip(self.names, self._handles, strict=False):
            if handle.poll() is not None:
                return ProcessError(name, f"ended: {handle.last_words()}", "ended")
        if isinstance(seen, WorkerLostError):
            return ProcessError(self.names[seen.replica], f"was lost: {seen.problem}", "lost")
        assert seen is not None
        return seen

    def _await_ends(self) -> None:
        deadline = time.monotonic() + 10.0
        while any(handle.poll() is None for handle in self._handles):
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)


class _Beat(NamedTuple):
    """When a worker was last heard, how far it had got, and when it got there."""

    heard: float
    progress: int
    progressed: float


class _Pings:
    """Whether the parameter servers answer, asked now and then without waiting for it."""

    def __init__(self) -> None:
        self._asked: Future[list[Any]] | None = None
        self._next = 0.0

    def look(self, client: Client, now: float) -> None:
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            error = asked.exception()
            if error is not None:
                problem = f"gives no sign of life: {error}"
                raise ProcessError("server", problem, "frozen") from None
        if self._asked is None and now >= self._next:
            self._next = now + 1.0
            self._asked = client.everywhere("ping", {}, timeout_s=FROZEN_S)


class _sockets:  # noqa: N801 - a context manager in all but looks
    """A folder for unix sockets, in the run's if paths there are short enough."""

    def __init__(self, run: Path) -> None:
        self._path = run.resolve() / _SOCKETS
        if len(str(self._path)) + 32 >= MAX_IPC_PATH:
            self._path = Path(tempfile.mkdtemp(prefix=_ASIDE))

    def __enter__(self) -> Path:
        self._path.mkdir(exist_ok=True)
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
