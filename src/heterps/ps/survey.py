"""The servers of a run, alive or not."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterps.errors import HeterPSError, ServerError
from heterps.ps.calls import Call, Joint, read_document
from heterps.ps.link import Identity, Link
from heterps.ps.links import Links
from heterps.ps.processes import Registration, registrations
from heterps.wire.keys import read_key


@dataclass(frozen=True)
class Sighting:
    """A registered server, and its stats or why there are none."""

    registration: Registration
    stats: dict[str, Any] | None
    problem: str | None


def survey(folder: Path, timeout_s: float) -> list[Sighting]:
    """All registered servers of a run; raises ServerError when none of them answers."""
    found, key = registrations(folder), read_key(folder)
    asked = [_ask(registration, key, timeout_s) for registration in found]
    seen = []
    for registration, (links, future) in zip(found, asked, strict=True):
        try:
            seen.append(Sighting(registration, future.result(), None))
        except HeterPSError as error:
            seen.append(Sighting(registration, None, str(error)))
        finally:
            links.close()
    if all(sighting.stats is None for sighting in seen):
        raise ServerError(f"{folder}: no server answers; {seen[0].problem}")
    return seen


def _ask(
    registration: Registration, key: bytes, timeout_s: float
) -> tuple[Links, Future[dict[str, Any]]]:
    link = Link(registration.shard, registration.shards, registration.address)
    identity = Identity(key, secrets.token_bytes(16), registration.generation, registration.encrypt)
    links = Links([link], identity)
    joint = Joint(1, lambda results: results[0])
    done = joint.part(0, read_document)
    links.submit(0, Call("stats", {}, [], time.monotonic() + timeout_s, 0, done, number=1))
    return links, joint.future
