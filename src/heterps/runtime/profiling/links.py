"""On which hosts units are, and what lies between them: measured between a unit of a type and the
parameter servers."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.errors import NoRoomError
from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.ps.processes import registration_name
from heterps.runtime.engines import MakeEngine
from heterps.runtime.engines.base import Engine, Handle, ProcessSpec
from heterps.runtime.profiling.probe import FOUND
from heterps.runtime.server_group import ServerGroup
from heterps.runtime.socket_folder import SocketFolder
from heterps.runtime.specs import Sites, server_name, server_spec
from heterps.wire.keys import create_key

_PATIENCE_S = 120.0
_PROBE = "probe"


@dataclass(frozen=True)
class Link:
    """How long a message is under way, and what a host can take in."""

    ms: float
    mbps: float


@dataclass(frozen=True)
class Neighbours:
    """On how many units of a type there is room by host, where the parameter servers are, and the
    ``link`` to them, if they are not on the host of the first unit."""

    hosts: Mapping[str, int]
    servers_on: tuple[str, ...]
    link: Link | None

    def as_document(self) -> dict[str, Any]:
        link = {} if self.link is None else {"link_ms": self.link.ms, "link_mbps": self.link.mbps}
        return {"hosts": dict(self.hosts), "servers_on": list(self.servers_on), **link}


def find_neighbours(job: Job, entry: ResourceType, make_engine: MakeEngine) -> Neighbours:
    """Where the engine places units of a type, and one of them beside the servers."""
    servers = [server_name(shard) for shard in range(job.servers.count)]
    needed = dict.fromkeys(servers, job.servers.type or "") | {_PROBE: entry.name}
    with tempfile.TemporaryDirectory(prefix="heterps-link-") as path:
        folder = Path(path)
        hosts = _hosts(entry, needed, make_engine, folder)
        with make_engine(folder) as engine, SocketFolder(folder) as sockets:
            sites = Sites.found(engine, sockets, needed)
            on = tuple(dict.fromkeys(sites.of[name].host for name in servers))
            if all(sites.near(_PROBE, name) for name in servers):
                return Neighbours(hosts, on, None)
            return Neighbours(hosts, on, _probed(job, entry, engine, sites, create_key(folder)))


def _hosts(
    entry: ResourceType, needed: Mapping[str, str], make_engine: MakeEngine, folder: Path
) -> Counter[str]:
    """Of as many units as there may be."""
    with make_engine(folder) as engine:
        there = min(entry.limit, engine.limits(needed).get(entry.name, 1))
    more = there - Counter(needed.values())[entry.name]
    others = {f"{_PROBE}-{number}": entry.name for number in range(1, more + 1)}
    with make_engine(folder) as engine:
        try:
            sites = engine.place({**needed, **others})
        except NoRoomError:  # somebody else was quicker
            sites, others = engine.place(needed), {}
    return Counter(sites[name].host for name in (_PROBE, *others))


def _probed(job: Job, entry: ResourceType, engine: Engine, sites: Sites, key: bytes) -> Link:
    shards = range(job.servers.count)
    handles = [engine.start(server_spec(job, key, 0, shard, sites)) for shard in shards]
    for shard, handle in enumerate(handles):
        _written(handle, registration_name(shard))
    servers = ServerGroup(handles, sites, engine.folder)
    servers.await_all(_PATIENCE_S, lambda: None)
    addresses = [part for one in servers.addresses_for(_PROBE) for part in ("--server", one)]
    arguments = ["--run", str(sites.of[_PROBE].folder), *addresses]
    arguments += ["--encrypt"] if job.security.encrypt else []
    module = "heterps.runtime.profiling.probe"
    spec = ProcessSpec(_PROBE, module, tuple(arguments), threads=entry.threads, secret=key)
    probe = engine.start(spec)
    found = json.loads(_written(probe, FOUND))
    return Link(found["ms"], found["mbps"])


def _written(handle: Handle, file: str) -> bytes:
    """What a process says in a file, once it does."""
    found: list[bytes] = []

    def look() -> bool:
        found.extend(text for text in (handle.read(file),) if text is not None)
        return bool(found)

    handle.wait_until(look, _PATIENCE_S)
    return found[0]
