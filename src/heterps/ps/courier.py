"""The client's side of snapshots without a shared disk: brings what servers have written to where
the snapshot is made, and takes to each server what it needs of one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heterps.errors import SnapshotError
from heterps.ps.calls import Joint, Reply
from heterps.ps.manifests import MANIFEST, Entry, check_seal, sealed_name
from heterps.ps.scratch import HERE, PIECE_BYTES
from heterps.ps.sharding import buckets_of
from heterps.ps.snapshots import Snapshot, open_snapshot
from heterps.wire.frames import Buffer, as_buffer


class Caller(Protocol):
    """What this needs of a client."""

    shards: int

    def call(
        self,
        shard: int,
        verb: str,
        fields: Mapping[str, Any],
        done: Callable[[Reply | Exception], None],
        buffers: Sequence[Buffer] = (),
    ) -> None: ...


class Courier:
    def __init__(self, client: Caller) -> None:
        self._client = client

    def sees(self, folder: Path) -> bool:
        """Whether every server has this folder of ours. One that cannot be written to is not
        asked for: what is in it is taken to servers."""
        mark = folder / f".seen-{secrets.token_hex(8)}"
        try:
            mark.touch()
        except OSError:
            return False
        try:
            shards = range(self._client.shards)
            return all(self._ask(s, "sees", {"path": str(mark)}).fields["sees"] for s in shards)
        finally:
            mark.unlink()

    def bring(self, outgoing: str, written: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """The files that each shard says it has written, checked."""
        for shard, entries in enumerate(written):
            for held, sealed in _files_of(entries):
                path = folder / held / sealed_name(sealed)
                path.parent.mkdir(exist_ok=True)
                self._fetch(shard, f"{outgoing}/{held}/{path.name}", sealed["bytes"], path)
                check_seal(path.parent, sealed)

    def take(self, path: Path) -> str:
        """A snapshot and its bases to every server, with the files that it needs of them; where it
        then is."""
        chain = [Path(str(held.path)).resolve() for held in open_snapshot(path).chain()]
        root = Path(os.path.commonpath(chain)) if len(chain) > 1 else chain[0].parent
        incoming = f"{HERE}incoming-{secrets.token_hex(6)}"
        for held in chain:
            where = f"{incoming}/{held.relative_to(root)}"
            for shard in range(self._client.shards):
                self._take_one(open_snapshot(held), held, shard, where)
        return f"{incoming}/{chain[-1].relative_to(root)}"

    def forget(self, taken: str) -> None:
        top = taken.split("/")[0]
        for shard in range(self._client.shards):
            self._ask(shard, "forget", {"path": top})

    def _take_one(self, snapshot: Snapshot, path: Path, shard: int, where: str) -> None:
        self._put(shard, path / MANIFEST, f"{where}/{MANIFEST}")
        buckets = buckets_of(shard, self._client.shards)
        body = {"tables": [part for parts in snapshot.tables.values() for part in parts]}
        body["tensors"] = list(snapshot.tensors.values())
        for held, sealed in _files_of(body, buckets):
            check_seal(path / held, sealed)
            name = sealed_name(sealed)
            self._put(shard, path / held / name, f"{where}/{held}/{name}")

    def _put(self, shard: int, path: Path, to: str) -> None:
        with path.open("rb") as file:
            offset = 0
            while True:
                piece = np.frombuffer(file.read(PIECE_BYTES), np.uint8)
                if offset and not len(piece):
                    return
                self._ask(shard, "put", {"path": to, "offset": offset}, (as_buffer(piece),))
                offset += len(piece)
                if len(piece) < PIECE_BYTES:
                    return

    def _fetch(self, shard: int, where: str, size: int, to: Path) -> None:
        with to.open("wb") as file:
            while file.tell() < size:
                reply = self._ask(shard, "fetch", {"path": where, "offset": file.tell()})
                if not len(reply.arrays[0]):
                    raise SnapshotError(where, f"ends at {file.tell()} of {size} bytes")
                file.write(reply.arrays[0].tobytes())
            file.flush()
            os.fsync(file.fileno())

    def _ask(
        self, shard: int, verb: str, fields: Mapping[str, Any], buffers: Sequence[Buffer] = ()
    ) -> Reply:
        joint = Joint(1, lambda results: results[0])
        self._client.call(shard, verb, fields, joint.part(0, _copied), buffers)
        reply = joint.future.result()
        assert isinstance(reply, Reply)
        return reply


def _copied(reply: Reply) -> Reply:
    """Its arrays are gone when the call is done."""
    return Reply(reply.fields, tuple(array.copy() for array in reply.arrays))


def _files_of(
    entries: Mapping[str, Any], buckets: range | None = None
) -> Iterator[tuple[str, Entry]]:
    """Folder and seal of each file, or of those that hold any of these buckets."""
    for part in entries["tables"]:
        if buckets is not None and not _overlap(part["buckets"], buckets):
            continue
        for sealed in part["files"]:
            if buckets is None or _overlap(sealed["buckets"], buckets):
                yield part["table"], sealed
        if part["extra"]:
            yield part["table"], part["extra"]
    for entry in entries["tensors"]:
        yield "", entry["file"]


def _overlap(pair: Sequence[int], buckets: range) -> bool:
    return pair[0] < buckets.stop and buckets.start < pair[1]
