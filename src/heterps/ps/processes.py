"""Server processes: how they start, register in the run folder, and end.

```text
RUN/key                     the run's key
RUN/servers/shard-0.json    addresses, process id and generation of a live server
RUN/servers/shard-0.log     what it had to say, as a rule nothing
```
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from heterps.errors import HeterPSError, InputError, ServerError
from heterps.parent import handed_secret, when_told
from heterps.processes import Child, stop_all
from heterps.wire.keys import read_key
from heterps.wire.sockets import MAX_IPC_PATH

FOLDER = "servers"
_ASIDE = "heterps-"
_PATIENCE_S = 10.0


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

    @classmethod
    def parse(cls, text: bytes | str) -> Registration:
        """Raises ValueError for what is none."""
        try:
            fields = json.loads(text)
            return cls(**{**fields, "addresses": tuple(fields["addresses"])})
        except (TypeError, KeyError):
            raise ValueError("not a server's registration") from None

    def write(self, folder: Path) -> None:
        path = registration_path(folder, self.shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{secrets.token_hex(4)}.new")
        aside.write_text(json.dumps(asdict(self)))
        aside.rename(path)


def registration_path(folder: Path, shard: int) -> Path:
    return folder / registration_name(shard)


def registration_name(shard: int) -> str:
    """In the folder of its server."""
    return f"{FOLDER}/shard-{shard}.json"


def registrations(folder: Path) -> list[Registration]:
    """The servers that are registered, by shard; raises InputError when there are none."""
    if not folder.is_dir():
        raise InputError(str(folder), "no such run folder")
    found = []
    for path in (folder / FOLDER).glob("shard-*.json"):
        try:
            found.append(Registration.parse(path.read_text()))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
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
    children: list[Child] = []
    try:
        for shard in range(count):
            place = ["--shard", str(shard), "--shards", str(count)]
            children.append(_start(folder, shard, [*place, *options]))
        deadline = time.monotonic() + timeout_s
        yield [_await(folder, shard, children[shard], deadline) for shard in range(count)]
    finally:
        stop_all(children, _PATIENCE_S)
        clear_registrations(folder)


def _start(folder: Path, shard: int, options: Sequence[str]) -> Child:
    registration_path(folder, shard).unlink(missing_ok=True)
    log = folder / FOLDER / f"shard-{shard}.log"
    log.unlink(missing_ok=True)
    return Child("heterps.ps.server", options, log)


def _await(folder: Path, shard: int, child: Child, deadline: float) -> Registration:
    path = registration_path(folder, shard)
    while not path.exists():
        if child.poll() is not None:
            reason = child.last_words()
            raise ServerError(f"server of shard {shard} ended at its start: {reason}")
        if time.monotonic() > deadline:
            raise ServerError(f"server of shard {shard} was not ready in time")
        time.sleep(0.02)
    return next(found for found in registrations(folder) if found.shard == shard)


def clear_registrations(folder: Path) -> None:
    """What servers that were killed could not remove themselves, whichever there were."""
    for registration in (folder / FOLDER).glob("shard-*.json"):
        try:
            addresses = json.loads(registration.read_text())["addresses"]
        except (OSError, ValueError, KeyError):
            addresses = []
        registration.unlink(missing_ok=True)
        for path in (Path(a.removeprefix("ipc://")) for a in addresses if a.startswith("ipc://")):
            path.unlink(missing_ok=True)
            if path.parent.name.startswith(_ASIDE):
                shutil.rmtree(path.parent, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Serves one shard until SIGTERM."""
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
    return parser


def _serve(options: argparse.Namespace) -> None:
    from heterps.ps.server import Server

    folder: Path = options.run
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    server = Server(
        handed_secret() or read_key(folder),
        options.shard,
        options.shards,
        generation=options.generation,
        encrypt=options.encrypt,
        folder=folder,
    )
    when_told(server.stop)
    with _deregistering(folder, options.shard), _socket_path(folder, options.shard) as path:
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
        server.run()


@contextmanager
def _deregistering(folder: Path, shard: int) -> Iterator[None]:
    """Removes the registration at last, unless it is a successor's by now: as long as it is there,
    others can remove the socket of a server that was killed on its way out."""
    path = registration_path(folder, shard)
    try:
        yield
    finally:
        with suppress(OSError, ValueError, KeyError):
            if json.loads(path.read_text())["pid"] == os.getpid():
                path.unlink()


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
