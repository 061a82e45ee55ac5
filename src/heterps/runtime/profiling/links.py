"""What lies between hosts: measured between a unit of a type and the parameter servers."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

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


def measure_link(job: Job, entry: ResourceType, make_engine: MakeEngine) -> Link | None:
    """Where a unit of a type and the servers are as the engine places them; None on one host."""
    with tempfile.TemporaryDirectory(prefix="heterps-link-") as path:
        folder = Path(path)
        with make_engine(folder) as engine, SocketFolder(folder) as sockets:
            names = [server_name(shard) for shard in range(job.servers.count)]
            units = dict.fromkeys(names, job.servers.type or "") | {_PROBE: entry.name}
            sites = Sites.found(engine, sockets, units)
            if all(sites.near(_PROBE, name) for name in names):
                return None
            return _probed(job, entry, engine, sites, create_key(folder))


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
