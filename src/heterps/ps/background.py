"""Saving and loading beside the server's loop, one at a time.

A save has two steps: every server writes its part, the client publishes the whole, and then every
server learns what became of it, since the next delta starts from there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heterps.errors import ServerError
from heterps.ps.dense import CapturedTensor, DenseTensor
from heterps.ps.protocol import CAPTURED
from heterps.ps.requests import Answer, Request
from heterps.ps.scratch import HERE, Scratch
from heterps.ps.service import Hosted, Outcome, Service, as_document
from heterps.ps.snapshots import Base, open_snapshot
from heterps.storage.places import Place, place_of
from heterps.wire.wake import Wake


@dataclass
class _Job:
    request: Request
    outcome: Answer | Exception | None = None


@dataclass(frozen=True)
class _Chosen:
    tables: dict[str, Hosted]
    tensors: dict[str, DenseTensor]


class Background:
    """``wake`` is set when ``finished`` has something."""

    def __init__(self, service: Service, scratch: Scratch) -> None:
        self._service = service
        self._scratch = scratch
        self._job: _Job | None = None
        self._thread: threading.Thread | None = None
        self._done: deque[_Job] = deque()
        self._unconcluded: tuple[str, list[Hosted]] = ("", [])
        self._captured: dict[str, CapturedTensor] = {}
        self.wake = Wake()

    @property
    def loading(self) -> bool:
        return self._job is not None and self._job.request.verb == "load"

    def start(self, request: Request) -> None:
        """Begins a save or a load; raises ServerError while there is another."""
        if self._job is not None:
            raise ServerError(f"a {self._job.request.verb} is under way already")
        chosen = self._chosen(request)
        self._job = _Job(request)
        self._thread = threading.Thread(target=self._run, args=(self._job, chosen))
        self._thread.start()

    def capture(self, request: Request) -> None:
        """Holds on to what is there now; the next save writes that."""
        if self._job is not None:
            raise ServerError(f"a {self._job.request.verb} is under way already")
        self._give_up_unconcluded()
        chosen, begun = self._chosen(request), []
        delta_of = _base(request)
        try:
            for hosted in chosen.tables.values():
                hosted.table.begin_save(delta_of)
                begun.append(hosted)
            captured = {name: tensor.capture() for name, tensor in chosen.tensors.items()}
        except Exception:
            for hosted in begun:
                hosted.table.conclude_save(None)
            raise
        self._captured = captured
        self._unconcluded = (CAPTURED, begun)

    def takes_over(self, request: Request) -> bool:
        """Whether this is the call under way, sent again: the answer then goes to the resender."""
        if self._job is None or self._job.request.peer.client != request.peer.client:
            return False
        if self._job.request.sequence != request.sequence:
            return False
        self._job.request = request
        return True

    def conclude(self, request: Request) -> None:
        """The save into a folder was published under an identity, or (without one) given up."""
        folder, tables = self._unconcluded
        self._scratch.forget(request.text("folder"))
        if folder != request.text("folder"):
            return
        self._unconcluded = ("", [])
        identity = request.header.fields.get("identity")
        self._captured = {}
        for hosted in tables:
            hosted.table.conclude_save(identity if isinstance(identity, str) else None)

    def finished(self) -> Iterator[Outcome]:
        self.wake.clear()
        while self._done:
            job = self._done.popleft()
            self._job = None
            assert job.outcome is not None
            yield job.request, job.outcome

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self.wake.close()

    def _run(self, job: _Job, chosen: _Chosen) -> None:
        work = self._load if job.request.verb == "load" else self._save
        try:
            job.outcome = work(job.request, chosen)
        except Exception as error:  # noqa: BLE001 - it becomes the client's answer
            job.outcome = error
        self._done.append(job)
        self.wake.set()

    def _chosen(self, request: Request) -> _Chosen:
        """The tables that the request names, or all there is. A tensor is on one shard only, so
        a name that is unknown here may be one of another shard's.
        """
        names = request.header.fields.get("names")
        tables, tensors = self._service.tables, self._service.tensors
        if not isinstance(names, tuple):
            return _Chosen(dict(tables), dict(tensors))
        return _Chosen(
            {name: tables[name] for name in names if name in tables},
            {name: tensors[name] for name in names if name in tensors},
        )

    def _save(self, request: Request, chosen: _Chosen) -> Answer:
        """Writes the parts of this shard, and gives their entries of the manifest."""
        began = time.thread_time()
        delta_of = _base(request)
        where = self._place(request, "folder", made=True)
        captured, self._captured = self._captured, {}
        if self._unconcluded[0] == CAPTURED:
            self._unconcluded = ("", [])
        else:
            self._give_up_unconcluded()
        entries: list[dict[str, Any]] = []
        written: list[Hosted] = []
        shard, shards = self._service.shard, self._service.shards
        try:
            for name, hosted in chosen.tables.items():
                entries.append(hosted.table.save_part(where, name, shard, shards, delta_of))
                written.append(hosted)
            tensors = [
                tensor.save_part(where, name, captured.get(name))
                for name, tensor in chosen.tensors.items()
            ]
        except Exception:
            for hosted in chosen.tables.values():
                hosted.table.give_up_save()
            raise
        self._unconcluded = (str(request.mapping("folder")["at"]), written)
        cpu_s = time.thread_time() - began
        return as_document({"tables": entries, "tensors": tensors, "cpu_s": cpu_s})

    def _place(self, request: Request, field: str, *, made: bool = False) -> Place:
        """As the request names it, or in the server's own folder, where it may have to be made."""
        fields = request.mapping(field)
        at = str(fields.get("at", ""))
        if not at.startswith(HERE):
            return place_of(fields)
        return self._scratch.made(at) if made else self._scratch.path(at)

    def _give_up_unconcluded(self) -> None:
        """The client of the last save may have died before it said what became of it."""
        _, tables = self._unconcluded
        self._unconcluded, self._captured = ("", []), {}
        for hosted in tables:
            hosted.table.conclude_save(None)

    def _load(self, request: Request, chosen: _Chosen) -> Answer:
        """Replaces the tables. The old rows go first, since there may be no room for both; by
        then the snapshot is known to hold the tables.
        """
        path, alias = self._place(request, "path"), request.header.fields.get("alias")
        snapshot = open_snapshot(path)
        names = {name: alias if isinstance(alias, str) else name for name in chosen.tables}
        for saved in names.values():
            snapshot.parts_of(saved, {})
        self._give_up_unconcluded()
        shard, shards = self._service.shard, self._service.shards
        for name, hosted in chosen.tables.items():
            if len(hosted.table) or hosted.table.step:
                old, hosted.table = hosted.table, self._service.make_table(hosted.spec)
                old.close()
            hosted.table.load(path, shard, shards, names[name])
        for name, tensor in chosen.tensors.items():
            tensor.load(path, name)
        return Answer({"names": [*chosen.tables, *chosen.tensors]})


def _base(request: Request) -> Base | None:
    """What a delta starts from; its own files are not read for that."""
    fields = request.header.fields.get("base")
    if not isinstance(fields, dict):
        return None
    return Base(place_of(fields), str(fields.get("identity")))
