"""A client of the parameter servers: tables by name, with the verbs of a table in this process."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from heterps.errors import InputError, ServerError, UnknownNameError
from heterps.ps.calls import Call, Joint, Reply, read_document
from heterps.ps.courier import Courier
from heterps.ps.link import Identity, Link
from heterps.ps.links import Links
from heterps.ps.processes import registrations
from heterps.ps.protocol import (
    CAPTURED,
    GRADIENT_PRECISIONS,
    ONCE,
    PATIENT,
    PRECISIONS,
    DenseSpec,
    TableSpec,
)
from heterps.ps.remote import RemoteTable
from heterps.ps.remote_tensor import RemoteTensor
from heterps.ps.scratch import HERE
from heterps.ps.sharding import BUCKETS
from heterps.ps.snapshots import Base, Partial, Where, open_snapshot
from heterps.storage.places import Place, place, place_fields
from heterps.wire.frames import Buffer
from heterps.wire.keys import read_key

_LONG_S = 24 * 3600.0
_IN_FLIGHT = 256  # of what is answered at once; far fewer than the calls a server remembers


class Saved(NamedTuple):
    """How many rows were written, and the time that it took the servers' processors."""

    rows: int
    cpu_s: float


class Client:
    """Speaks to all shards of a run. For several threads.

    Every call ends by its deadline, ``timeout_s`` from now unless it says otherwise, with a result
    or with an error that names the shard. Rows travel as ``dtype``: ``fp32``, ``bf16`` or
    ``fp16``; so do their gradients, but as ``bf16`` for the last. Dense tensors are ``fp32``. A
    call that was not answered is sent again up to ``retries`` times, and is still done once.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        key: bytes,
        *,
        generation: int = 0,
        encrypt: bool = False,
        dtype: str = "fp32",
        timeout_s: float = 60.0,
        retries: int = 2,
    ) -> None:
        if dtype not in PRECISIONS:
            raise UnknownNameError("dtype", "precision", dtype, PRECISIONS)
        if not 1 <= len(addresses) <= BUCKETS:
            raise InputError("addresses", f"expected 1 to {BUCKETS}, got {len(addresses)}")
        self.dtype = PRECISIONS[dtype]
        self.gradient_dtype = GRADIENT_PRECISIONS[dtype]
        self.timeout_s = timeout_s
        self.shards = len(addresses)
        self.far = any(address.startswith("tcp:") for address in addresses)
        self._retries = retries
        self._identity = Identity(key, secrets.token_bytes(16), generation, encrypt)
        links = [Link(shard, self.shards, address) for shard, address in enumerate(addresses)]
        self._links = Links(links, self._identity)
        self._numbers = itertools.count(1)
        self.shares_disk = True  # the first folder that servers were asked for
        self._seen: dict[Path, bool] = {}
        self._room = [threading.Semaphore(_IN_FLIGHT) for _ in addresses]
        self.close = weakref.finalize(self, self._links.close)

    @classmethod
    def of_run(cls, folder: str | Path, *, generation: int | None = None, **options: Any) -> Client:
        """To the servers that are registered in a run folder, with its key."""
        folder = Path(folder)
        found = registrations(folder)
        shards = found[0].shards
        if [r.shard for r in found if r.shards == shards] != list(range(shards)):
            known = ", ".join(f"{r.shard} of {r.shards}" for r in found)
            raise ServerError(f"{folder}: not every shard has a server (there are {known})")
        return cls(
            [registration.address for registration in found],
            read_key(folder),
            generation=found[0].generation if generation is None else generation,
            encrypt=found[0].encrypt,
            **options,
        )

    def look_for_disk(self, folder: Path, *others: Path) -> None:
        """Asks every server which of these folders of ours it has. Snapshots in or below one that
        is not had by all come and go through this client from now on; what is below none of them
        counts as the first does."""
        courier = Courier(self)
        asked = [folder, *(path for path in others if path.is_dir())]
        self._seen = {path.absolute(): courier.sees(path) for path in asked}
        self.shares_disk = self._seen[folder.absolute()]

    def _courier_for(self, where: Place) -> Courier | None:
        if not isinstance(where, Path):
            return None
        path = where.absolute()
        above = [folder for folder in self._seen if path.is_relative_to(folder)]
        nearest = max(above, key=lambda folder: len(folder.parts), default=None)
        seen = self.shares_disk if nearest is None else self._seen[nearest]
        return None if seen else Courier(self)

    def create_table(self, name: str, spec: TableSpec) -> RemoteTable:
        """The table of that name, made if it is not there; a different spec is an InputError."""
        self.everywhere("create", {"table": name, "spec": spec.as_fields()}).result()
        return RemoteTable(self, name, spec)

    def table(self, name: str) -> RemoteTable:
        """A table that exists."""
        about = self.everywhere("describe", {"table": name}).result()[0]
        return RemoteTable(self, name, TableSpec.from_fields(about["spec"]))

    def ping(self, timeout_s: float | None = None) -> None:
        """Raises ServerError unless every server answers."""
        self.everywhere("ping", {}, timeout_s=timeout_s).result()

    def stats(self, timeout_s: float | None = None) -> list[dict[str, Any]]:
        """What every server says of itself and its tables."""
        return self.everywhere("stats", {}, timeout_s=timeout_s, take=read_document).result()

    def create_tensor(self, name: str, values: Any, spec: DenseSpec) -> RemoteTensor:
        """The dense tensor of that name, made with these values if it is not there."""
        tensor = RemoteTensor(self, name, np.shape(values))
        tensor.create(values, spec)
        return tensor

    def capture(self, names: Sequence[str] | None = None, delta_of: Where | None = None) -> None:
        """Has every server hold on to what it has now. The ``save`` that follows, with the same
        arguments, writes that, whatever changes meanwhile.
        """
        base = None if delta_of is None else open_snapshot(delta_of).as_base()
        self.everywhere("capture", {"names": names, "base": _base_fields(base)}).result()

    def release(self) -> None:
        """Lets go of a capture that is not going to be saved."""
        self._conclude({"folder": CAPTURED, "identity": None})

    def save(
        self,
        path: Where,
        names: Sequence[str] | None = None,
        delta_of: Where | None = None,
        timeout_s: float = _LONG_S,
        *,
        aside: bool = False,
    ) -> Saved:
        """One snapshot of all tables and tensors, or of those named, at a path or a URL; a delta
        follows the last. None follows one that is ``aside``: the last stays what it was. Servers
        write their parts themselves, or hand them over where they do not see the path."""
        base = None if delta_of is None else open_snapshot(_absolute(delta_of)).as_base()
        with Partial(_absolute(path)) as partial:
            courier = self._courier_for(partial.folder)
            far = f"{HERE}{partial.folder.name}"
            held: dict[str, Any] = (
                {"at": far} if courier is not None else place_fields(partial.folder)
            )
            asked = {"folder": held, "names": names, "base": _base_fields(base)}
            identity = None
            try:
                saving = self.everywhere("save", asked, timeout_s=timeout_s, take=read_document)
                written = saving.result()
                if courier is not None:
                    courier.bring(far, written, Path(str(partial.folder)))
                tables = [entry for shard in written for entry in shard["tables"]]
                tensors = [entry for shard in written for entry in shard["tensors"]]
                _check_names(names, [e.get("table", e.get("tensor")) for e in [*tables, *tensors]])
                identity = partial.publish(tables, base, tensors)
            finally:
                self._conclude({"folder": held["at"], "identity": None if aside else identity})
        cpu_s = sum(shard["cpu_s"] for shard in written)
        return Saved(sum(entry["rows"] for entry in tables), cpu_s)

    def load(
        self,
        path: Where,
        names: Sequence[str] | None = None,
        alias: str | None = None,
        timeout_s: float = _LONG_S,
    ) -> None:
        """Replaces all tables and tensors, or those named, by a snapshot's. ``alias`` is what the
        snapshot calls a table, if that is not its name here.
        """
        with self._known(place(path)) as known:
            asked = {"path": known, "names": names, "alias": alias}
            loaded = self.everywhere("load", asked, timeout_s=timeout_s).result()
        _check_names(names, [name for shard in loaded for name in shard["names"]])

    def advance(self, generation: int) -> None:
        """Takes the servers to a later generation: other clients of this one are shut out."""
        self.everywhere("advance", {"generation": generation}).result()
        self._identity = replace(self._identity, generation=generation)
        self._links.change_identity(self._identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What tables and tensors are made of.

    def link(self, shard: int) -> Link:
        return self._links.all[shard]

    def everywhere(
        self,
        verb: str,
        fields: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        take: Callable[[Reply], Any] = lambda reply: reply.fields,
    ) -> Future[list[Any]]:
        """The same call to every shard; the future gives what ``take`` makes of the replies. Of
        what takes long none is at work any more when it fails: servers do one thing at a time.
        """
        joint = Joint(self.shards, lambda results: results, settled=verb in PATIENT)
        for shard in range(self.shards):
            self.call(shard, verb, fields, joint.part(shard, take), timeout_s=timeout_s)
        return joint.future

    def call(
        self,
        shard: int,
        verb: str,
        fields: Mapping[str, Any],
        done: Callable[[Reply | Exception], None],
        buffers: Sequence[Buffer] = (),
        out: Buffer | None = None,
        pool: Any = None,
        timeout_s: float | None = None,
    ) -> None:
        """Sends a call; ``done`` is called once, in the thread of the links. Waits while too many
        are under way, but not with a pull for a batch, which is for its sender to bound: such
        pulls wait for changes, so changes must not wait for them."""
        wait = self.timeout_s if timeout_s is None else timeout_s
        retries = 0 if verb in PATIENT else self._retries
        for_batch = verb == "pull" and fields.get("batch") is not None
        room = None if for_batch else self._room[shard]
        done = done if room is None else _making(room, done)
        call = Call(verb, fields, list(buffers), time.monotonic() + wait, retries, done)
        call.out, call.pool = out, pool
        # A pull that waits for a batch is not late, whatever the deadline of one attempt.
        call.attempt_s = None if verb in PATIENT or for_batch else wait / (retries + 1)
        try:
            if room is not None and not room.acquire(timeout=max(0.0, wait)):
                raise ServerError(f"{self.link(shard).where}: too many calls are under way")
            # Numbered once there is room: servers remember the latest calls by their numbers.
            call.number = next(self._numbers)
            if verb in ONCE:
                call.fields = {**fields, "sequence": call.number}
            self._links.submit(shard, call)
        except ServerError:
            call.release()
            raise

    @contextmanager
    def _known(self, where: Place) -> Iterator[dict[str, Any]]:
        """What servers call a snapshot, which may have to be taken to them for the time being."""
        courier = self._courier_for(where)
        if courier is None:
            yield place_fields(where)
            return
        assert isinstance(where, Path)
        taken = courier.take(where.absolute())
        try:
            yield {"at": taken}
        finally:
            courier.forget(taken)

    def _conclude(self, fields: Mapping[str, Any]) -> None:
        try:
            self.everywhere("conclude", fields).result()
        except ServerError:
            if fields["identity"] is None:
                return  # the save has failed already, and says why
            raise


def _making(
    room: threading.Semaphore, done: Callable[[Reply | Exception], None]
) -> Callable[[Reply | Exception], None]:
    """Makes room for another call, then hands the outcome on."""

    def make_room(outcome: Reply | Exception) -> None:
        room.release()
        done(outcome)

    return make_room


def _absolute(path: Where) -> Place:
    found = place(path)
    return found.absolute() if isinstance(found, Path) else found


def _base_fields(base: Base | None) -> dict[str, Any] | None:
    if base is None:
        return None
    return {**place_fields(base.path), "identity": base.identity}


def _check_names(asked: Sequence[str] | None, done: Sequence[str]) -> None:
    for name in asked or ():
        if name not in done:
            raise UnknownNameError("names", "table or tensor", name, set(done))
