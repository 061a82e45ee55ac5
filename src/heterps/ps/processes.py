"""Server processes: how they start, register in the run folder, and end.

```text
RUN/key                     the run's key
RUN/servers/shard-0.json    addresses, process id and generation of a live server
RUN/servers/shard-0.log     what it had to say, as a rule nothing
```
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from heterps.errors import HeterPSError, InputError, ServerError
from heterps.wire.keys import read_key
from heterps.wire.sockets import MAX_IPC_PATH

FOLDER = "servers"
_ASIDE = "heterps-"
_PR_SET_PDEATHSIG = 1
_LAST_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Registration:
    """A live server, as its file in the run folder says."""

    shard: int
    shards: int
    generation: int
    addresses: tuple[str, ...]
    encrypt: bool
    pid: int
    host: str

    @property
    def address(self) -> str:
        """The nearest: a unix socket on its own host, else tcp."""
        near = self.host == socket.gethostname()
        kinds = ("ipc://", "tcp://") if near else ("tcp://", "ipc://")
        return min(self.addresses, key=lambda address: kinds.index(address[:6]))

    def write(self, folder: Path) -> None:
        path = registration_path(folder, self.shard)
        aside = path.with_suffix(f".{secrets.token_hex(4)}.new")
        aside.write_text(json.dumps(asdict(self)))
        aside.rename(path)


def registration_path(folder: Path, shard: int) -> Path:
    return folder / FOLDER / f"shard-{shard}.json"


def registrations(folder: Path) -> list[Registration]:
    """The servers that are registered, by shard; raises InputError when there are none."""
    if not folder.is_dir():
        raise InputError(str(folder), "no such run folder")
    found = []
    for path in (folder / FOLDER).glob("shard-*.json"):
        try:
            fields = json.loads(path.read_text())
            found.append(Registration(**{**fields, "addresses": tuple(fields["addresses"])}))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError):
            raise InputError(str(path), "not a server's registration") from None
    if not found:
        raise InputError(str(folder), "no parameter server is registered here")
    return sorted(found, key=lambda registration: registration.shard)


@contextmanager
def start_servers(
    folder: Path,
    count: int,
    *,
    generation: int = 0,
    listen: str | None = None,
    encrypt: bool = False,
    timeout_s: float = 60.0,
) -> Iterator[list[Registration]]:
    """Starts ``count`` servers and gives their registrations once all answer; stops them after.

    The run's key has to be in the folder. ``listen`` adds tcp on that host address.
    """
    read_key(folder)
    (folder / FOLDER).mkdir(exist_ok=True)
    options = ["--run", str(folder), "--generation", str(generation)]
    options += [*(["--listen", listen] if listen else []), *(["--encrypt"] if encrypt else [])]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for shard in range(count):
            place = ["--shard", str(shard), "--shards", str(count)]
            processes.append(_start(folder, shard, [*place, *options]))
        deadline = time.monotonic() + timeout_s
        yield [_await(folder, shard, processes[shard], deadline) for shard in range(count)]
    finally:
        _stop(processes)
        _clear(folder, range(count))


def _start(folder: Path, shard: int, options: Sequence[str]) -> subprocess.Popen[bytes]:
    registration_path(folder, shard).unlink(missing_ok=True)
    command = [sys.executable, "-m", "heterps.ps.server", "--child", *options]
    # The kernel's word on a dead parent is about the thread that started us, so only the main one.
    if threading.current_thread() is threading.main_thread():
        command += ["--parent", str(os.getpid())]
    with (folder / FOLDER / f"shard-{shard}.log").open("wb") as log:
        # Its end of the pipe closes when this process dies, however it dies.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)


def _await(
    folder: Path, shard: int, process: subprocess.Popen[bytes], deadline: float
) -> Registration:
    path = registration_path(folder, shard)
    while not path.exists():
        if process.poll() is not None:
            reason = _last_line(folder, shard)
            raise ServerError(f"server of shard {shard} ended at its start: {reason}")
        if time.monotonic() > deadline:
            raise ServerError(f"server of shard {shard} was not ready in time")
        time.sleep(0.02)
    return next(found for found in registrations(folder) if found.shard == shard)


def _last_line(folder: Path, shard: int) -> str:
    lines = (folder / FOLDER / f"shard-{shard}.log").read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")


def _stop(processes: Sequence[subprocess.Popen[bytes]], patience_s: float = 10.0) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + patience_s
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _clear(folder: Path, shards: range) -> None:
    """What servers that were killed could not remove themselves."""
    for shard in shards:
        try:
            addresses = json.loads(registration_path(folder, shard).read_text())["addresses"]
        except (OSError, ValueError, KeyError):
            continue
        registration_path(folder, shard).unlink(missing_ok=True)
        for path in (Path(a.removeprefix("ipc://")) for a in addresses if a.startswith("ipc://")):
            path.unlink(missing_ok=True)
            if path.parent.name.startswith(_ASIDE):
                shutil.rmtree(path.parent, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Serves one shard until SIGTERM, or until the process that started it has gone."""
    options = _parser().parse_args(argv)
    try:
        _serve(options)
    except HeterPSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heterps.ps.server", description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--shard", type=int, required=True)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--generation", type=int, default=0)
    parser.add_argument("--listen", help="also serve tcp on this host address")
    parser.add_argument("--encrypt", action="store_true")
    parser.add_argument("--child", action="store_true", help="end when standard input ends")
    parser.add_argument("--parent", type=int, help="end when this process has ended")
    return parser


def _serve(options: argparse.Namespace) -> None:
    from heterps.ps.server import Server

    folder: Path = options.run
    server = Server(
        read_key(folder),
        options.shard,
        options.shards,
        generation=options.generation,
        encrypt=options.encrypt,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    _end_with_parent(options.parent, server.stop if options.child else None)
    with _socket_path(folder, options.shard) as path:
        server.bind(f"ipc://{path}")
        if options.listen:
            server.bind(f"tcp://{options.listen}:*")
        registration = Registration(
            options.shard,
            options.shards,
            options.generation,
            tuple(server.addresses),
            options.encrypt,
            os.getpid(),
            socket.gethostname(),
        )
        registration.write(folder)
        try:
            server.run()
        finally:
            _deregister(folder, registration)


def _deregister(folder: Path, registration: Registration) -> None:
    """Removes the registration, unless it is a successor's by now."""
    path = registration_path(folder, registration.shard)
    try:
        if json.loads(path.read_text())["pid"] == registration.pid:
            path.unlink()
    except (OSError, ValueError, KeyError):
        return


@contextmanager
def _socket_path(folder: Path, shard: int) -> Iterator[Path]:
    """A place for a unix socket, near the run if its path is short enough, else in a folder of
    its own. The name is new each time: a server that lingers cannot remove its successor's.
    """
    path = folder.resolve() / FOLDER / f"shard-{shard}-{secrets.token_hex(4)}.sock"
    for leftover in path.parent.glob(f"shard-{shard}-*.sock"):
        leftover.unlink(missing_ok=True)
    aside = None
    if len(os.fsencode(path)) >= MAX_IPC_PATH:
        aside = tempfile.mkdtemp(prefix=_ASIDE)
        path = Path(aside) / path.name
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def _end_with_parent(parent: int | None, stop: Callable[[], None] | None) -> None:
    """By the kernel's signal, and by the pipe on standard input that ends with the parent."""
    if parent is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            raise ServerError("the process that started this server has gone")
    if stop is not None:
        threading.Thread(target=_watch_input, args=(stop,), name="parent", daemon=True).start()


def _watch_input(stop: Callable[[], None]) -> None:
    while os.read(0, 1):
        pass
    stop()
    # Whatever holds the loop up, nobody is left to wait for it.
    time.sleep(_LAST_PATIENCE_S)
    os._exit(1)
