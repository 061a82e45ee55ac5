"""The processes of a run as an engine starts them, and by what they reach each other: unix sockets
on one host, tcp between hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heterps.job.spec import Job
from heterps.runtime.engines.base import Engine, ProcessSpec, Site
from heterps.runtime.layout import Layout


def worker_name(place: tuple[int, int]) -> str:
    stage, replica = place
    return f"stage-{stage}-replica-{replica}"


def place_of(name: str) -> tuple[int, int] | None:
    """Stage and replica of the worker of that name; None for any other process."""
    found = re.fullmatch(r"stage-(\d+)-replica-(\d+)", name)
    return None if found is None else (int(found[1]), int(found[2]))


def server_name(shard: int) -> str:
    return f"server-{shard}"


def units_of(job: Job, layout: Layout) -> dict[str, str]:
    """The resource type of each process by name; empty for servers that are of none."""
    servers = {server_name(shard): job.servers.type or "" for shard in range(job.servers.count)}
    workers = {worker_name(place): layout.stages[place[0]].type for place in layout.workers}
    return servers | workers


def nearest(addresses: Sequence[str], *, near: bool) -> str:
    """Of those that a process listens on: a unix socket on its own host, else tcp."""
    kinds = ("ipc://", "tcp://") if near else ("tcp://", "ipc://")
    return min(addresses, key=lambda address: kinds.index(address[:6]))


@dataclass(frozen=True)
class Sites:
    """Where the processes of one generation are; ``sockets`` is the coordinator's folder of unix
    sockets, which its own run folder has a place for."""

    host: str
    folder: Path
    sockets: Path
    of: Mapping[str, Site]

    @classmethod
    def found(cls, engine: Engine, sockets: Path, units: Mapping[str, str]) -> Sites:
        return cls(engine.host, engine.folder, sockets, engine.place(units))

    @property
    def span_hosts(self) -> bool:
        return any(site.host != self.host for site in self.of.values())

    def near(self, one: str, other: str | None = None) -> bool:
        """Whether two processes are on one host; ``None`` is the coordinator."""
        return self.of[one].host == (self.host if other is None else self.of[other].host)

    def listen(self, name: str) -> list[str]:
        """What a process other than a server listens on."""
        site = self.of[name]
        sockets = self.sockets if site.folder == self.folder else site.folder
        return self._both(f"{sockets}/{short(name)}", site.host)

    def control(self) -> list[str]:
        """What the coordinator listens on."""
        return self._both(f"{self.sockets}/control", self.host)

    def _both(self, path: str, host: str) -> list[str]:
        return [f"ipc://{path}", *([f"tcp://{host}:*"] if self.span_hosts else [])]


def short(name: str) -> str:
    """For a path of a unix socket, which may not be long."""
    return name.replace("stage-", "").replace("-replica-", ".")


def server_spec(job: Job, key: bytes, generation: int, shard: int, sites: Sites) -> ProcessSpec:
    name = server_name(shard)
    site = sites.of[name]
    arguments = [
        *("--shard", str(shard), "--shards", str(job.servers.count)),
        *("--run", str(site.folder), "--generation", str(generation)),
        *(["--listen", site.host] if sites.span_hosts else []),
        *(["--encrypt"] if job.security.encrypt else []),
    ]
    threads = job.servers.threads
    return ProcessSpec(name, "heterps.ps.server", tuple(arguments), threads=threads, secret=key)


def worker_spec(
    job: Job,
    key: bytes,
    generation: int,
    number: int,
    place: tuple[int, int],
    control: Sequence[str],
    sites: Sites,
    threads: int,
) -> ProcessSpec:
    name = worker_name(place)
    site = sites.of[name]
    arguments = [
        *("--run", str(site.folder), "--name", name, "--number", str(number)),
        *("--control", nearest(control, near=sites.near(name)), "--host", site.host),
        *(part for address in sites.listen(name) for part in ("--listen", address)),
        *("--generation", str(generation)),
        *(["--encrypt"] if job.security.encrypt else []),
    ]
    module = "heterps.runtime.worker"
    return ProcessSpec(name, module, tuple(arguments), threads=threads, secret=key)
