"""The parameter servers of one generation: where they are, and what they keep their rows in."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from heterps.errors import ProcessError, ServerError
from heterps.job.spec import Job
from heterps.ps.client import Client
from heterps.ps.processes import Registration, registration_name
from heterps.ps.scratch import HERE
from heterps.runtime.engines.base import Handle
from heterps.runtime.specs import Sites, nearest

_COLD = "cold"
_COMMIT_S = 60.0


class ServerGroup:
    """``handles`` are theirs by shard; ``run`` is the folder of the run."""

    def __init__(self, handles: Sequence[Handle], sites: Sites, run: Path) -> None:
        self._handles = handles
        self._sites = sites
        self._run = run
        self._found: list[Registration] = []

    def await_all(self, timeout_s: float, meanwhile: Callable[[], object]) -> None:
        """Until every server has said where it listens; that then stands in the run folder. Raises
        ProcessError for one that is late, and what ``meanwhile`` raises."""
        deadline = time.monotonic() + timeout_s
        for shard, handle in enumerate(self._handles):
            while (text := handle.read(registration_name(shard))) is None:
                meanwhile()
                if time.monotonic() > deadline:
                    problem = f"was not ready in {timeout_s:g} s: {handle.last_words()}"
                    raise ProcessError(handle.spec.name, problem, "stuck")
            self._found.append(Registration.parse(text))
            if self._sites.of[handle.spec.name].folder != self._run:
                self._found[-1].write(self._run)

    def addresses_for(self, name: str | None = None) -> list[str]:
        """Of each server the one by which a process, or the coordinator, is best served."""
        pairs = zip(self._found, self._handles, strict=True)
        return [
            nearest(found.addresses, near=self._sites.near(handle.spec.name, name))
            for found, handle in pairs
        ]

    def cold_folder(self, job: Job, client: Client, closing: ExitStack) -> str:
        """For rows that servers do not hold in memory: in the run, where it goes with ``closing``,
        or each server has its own."""
        cold = self._run / _COLD
        shutil.rmtree(cold, ignore_errors=True)
        if not client.shares_disk:
            return f"{HERE}{_COLD}"
        if any(entry.memory_gib is not None for entry in job.tables.values()):
            cold.mkdir()
            closing.callback(shutil.rmtree, cold, ignore_errors=True)
        return str(cold)


def await_commit(client: Client, name: str, batch: int) -> None:
    """Until a table has all that was sent to it for a batch. Raises ServerError when it is late."""
    table = client.table(name)
    deadline = time.monotonic() + _COMMIT_S
    while (committed := table.committed) < batch:
        if time.monotonic() > deadline:
            problem = f"has committed batch {committed}, and not {batch} in {_COMMIT_S:g} s"
            raise ServerError(f"table '{name}' {problem}")
        time.sleep(0.005)
