"""Sums over the replicas of a stage that are on one host, in memory which they share.

```text
replica 0   writes its gradients ──┐ notices ┌── adds up all, in the order of replicas
replica 1   writes its gradients ──┴─────────┴── adds up all, in the order of replicas
```

Nobody hands sums on, so that each is there one notice after the last replica has come. Each reads
what all have written: with very many of them a ring would move fewer bytes.

The memory has a name for each reader, which removes it once it has opened it: whatever is killed
after the first sum leaves nothing behind.
"""

from __future__ import annotations

import math
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from heterps.errors import InputError, WireError, WorkerLostError
from heterps.runtime.collective import ReplicaGroup
from heterps.wire.pipes import PipeReader, PipeWriter, make_pipe
from heterps.wire.segments import ALIGNMENT, Segment, new_path, segment_folder, segment_folders

MAX_REPLICAS = 8
_JOIN_S = 60.0
_TURNS = 2  # who writes for a turn knows that all have read what it wrote two turns before
_LONGEST_PATH = 254
_RECORD = struct.Struct(f"<q?{_LONGEST_PATH + 1}p")


class _Notice(NamedTuple):
    """A replica has written for a turn, or has ``nothing`` but zeros; ``path`` is where, and there
    until the reader has opened it."""

    turn: int
    nothing: bool
    path: str

    def pack(self) -> bytes:
        return _RECORD.pack(self.turn, self.nothing, self.path.encode())

    @classmethod
    def unpack(cls, record: bytes) -> _Notice:
        turn, nothing, path = _RECORD.unpack(record)
        return cls(turn, nothing, path.decode())


class _Other:
    """Another replica, as one of the things that a worker waits for."""

    def __init__(
        self, reader: PipeReader, waits: Callable[[], bool], noticed: Callable[[], None]
    ) -> None:
        self.reader = reader
        self._waits = waits
        self.writer: PipeWriter | None = None
        self.notices: deque[_Notice] = deque()
        self.written: _Places | None = None
        self._noticed = noticed

    def fileno(self) -> int:
        return self.reader.fileno()

    @property
    def awaited(self) -> bool:
        return self._waits() and not self.notices

    def clear(self) -> None:
        """Takes in what has come."""
        self.notices += map(_Notice.unpack, self.reader.take())
        self._noticed()


class _Places:
    """Where a replica writes: tensors over a segment, for one turn and the next."""

    def __init__(self, segment: Segment, like: Sequence[Tensor]) -> None:
        self.segment = segment
        memory, start = torch.from_numpy(segment.memory), 0
        self._of_turn: list[list[Tensor]] = []
        for _ in range(_TURNS):
            self._of_turn.append([])
            for tensor in like:
                part = memory[start : start + tensor.nbytes]
                self._of_turn[-1].append(part.view(tensor.dtype).view(tensor.shape))
                start += _room(tensor)

    @staticmethod
    def size_bytes(like: Sequence[Tensor]) -> int:
        return max(ALIGNMENT, _TURNS * sum(_room(tensor) for tensor in like))

    def __getitem__(self, turn: int) -> list[Tensor]:
        return self._of_turn[turn % _TURNS]


class SharedGroup(ReplicaGroup):
    """``replicas`` on one host. The first makes the pipes, and all of them then ``join``. What is
    summed has the same shapes every time."""

    beside = True

    def __init__(self, stage: int, replica: int, replicas: int) -> None:
        self._place = (stage, replica)
        self._replicas = replicas
        self._others: dict[int, _Other] = {}
        self._own: _Places | None = None
        self._names: dict[int, Path] = {}  # of our own memory, by reader
        self._made: list[Path] = []
        self._turn = 0
        self._ready: Callable[[], None] | None = None

    def make_pipes(self) -> str:
        """The first replica alone: what the others need to find them."""
        base = new_path()
        for one in range(self._replicas):
            for other in range(self._replicas):
                if one != other:
                    self._made.append(_pipe(base, one, other))
                    make_pipe(self._made[-1])
        return base.name

    def join(self, meeting: str) -> None:
        """Returns when all have; ``meeting`` is what the first one has said."""
        base, me = segment_folder() / Path(meeting).name, self._place[1]
        others = [replica for replica in range(self._replicas) if replica != me]
        try:
            for replica in others:
                reader = PipeReader(_pipe(base, replica, me), _RECORD.size)
                self._others[replica] = _Other(reader, self._waits, self._noticed)
            for replica in others:
                writer = PipeWriter(_pipe(base, me, replica), _RECORD.size, _JOIN_S)
                self._others[replica].writer = writer
            for other in self._others.values():
                other.reader.await_writer(_JOIN_S)
        except WireError as error:
            raise self._lost(f"its replicas did not meet: {error}") from None

    @property
    def sources(self) -> Sequence[_Other]:
        """What to wait for where ``ready`` is waited for: ``begin`` starts no thread."""
        return list(self._others.values())

    def sum(self, tensors: Sequence[Tensor], *, nothing: bool = False) -> None:
        self.begin(tensors, lambda: None, nothing=nothing)()

    def begin(
        self, tensors: Sequence[Tensor], ready: Callable[[], None], *, nothing: bool = False
    ) -> Callable[[], None]:
        self._turn += 1
        if self._own is None:
            segment, self._names = _new_segment(_Places.size_bytes(tensors), self._others)
            self._own = _Places(segment, tensors)
        if not nothing:
            for place, tensor in zip(self._own[self._turn], tensors, strict=True):
                place.copy_(tensor)
        for replica, other in self._others.items():
            assert other.writer is not None
            try:
                other.writer.send(_Notice(self._turn, nothing, str(self._names[replica])).pack())
            except WireError:
                raise self._lost(f"replica {replica} of it has ended") from None
        self._ready = ready
        self._noticed()
        return partial(self._finish, tensors, nothing)

    def close(self) -> None:
        for other in self._others.values():
            other.reader.close()
            if other.writer is not None:
                other.writer.close()
        for path in (*self._made, *self._names.values()):
            path.unlink(missing_ok=True)

    def _waits(self) -> bool:
        return self._ready is not None

    def _noticed(self) -> None:
        """Whether that was the last one. Who has ended is waited for no longer: the end of the sum
        says so."""
        others = self._others.values()
        if self._ready is not None and all(o.notices or o.fileno() < 0 for o in others):
            ready, self._ready = self._ready, None
            ready()

    def _finish(self, tensors: Sequence[Tensor], nothing: bool) -> None:
        for replica, other in self._others.items():
            while not other.notices:
                if other.fileno() < 0:
                    raise self._lost(f"replica {replica} of it has ended")
                other.reader.wait(None)
                other.clear()
        self._ready = None
        parts = self._parts(tensors, nothing)
        with torch.no_grad():
            for tensor, *own in zip(tensors, *parts, strict=True):
                _add_up(own, tensor)

    def _parts(self, like: Sequence[Tensor], nothing: bool) -> list[list[Tensor]]:
        """What the replicas have written for this turn, in their order."""
        found: dict[int, list[Tensor]] = {}
        if self._own is not None and not nothing:
            found[self._place[1]] = self._own[self._turn]
        for replica, other in self._others.items():
            notice = other.notices.popleft()
            assert notice.turn == self._turn
            if other.written is None:
                other.written = self._joined(notice, like)
            if not notice.nothing:
                found[replica] = other.written[self._turn]
        return [found[replica] for replica in sorted(found)]

    def _joined(self, notice: _Notice, like: Sequence[Tensor]) -> _Places:
        try:
            segment = Segment.join(0, Path(notice.path), _Places.size_bytes(like))
        except WireError as error:
            raise self._lost(f"its replicas share no memory: {error}") from None
        segment.unlink()
        return _Places(segment, like)

    def _lost(self, problem: str) -> WorkerLostError:
        return WorkerLostError(*self._place, problem)


def _add_up(parts: Sequence[Tensor], tensor: Tensor) -> None:
    if not parts:
        tensor.zero_()
    elif len(parts) == 1:
        tensor.copy_(parts[0])
    else:
        torch.add(parts[0], parts[1], out=tensor)
        for part in parts[2:]:
            tensor += part


def _new_segment(size_bytes: int, readers: Iterable[int]) -> tuple[Segment, dict[int, Path]]:
    """In memory, or else in a file that is mapped: containers often have little of the first."""
    *first, last = segment_folders()
    if len(os.fsencode(_name(new_path(last), MAX_REPLICAS))) > _LONGEST_PATH:
        raise InputError("TMPDIR", f"{last} is too long a path for files that processes share")
    for folder in first:
        with suppress(OSError):
            return _named(Segment.create(0, size_bytes, folder), readers)
    return _named(Segment.create(0, size_bytes, last), readers)


def _named(segment: Segment, readers: Iterable[int]) -> tuple[Segment, dict[int, Path]]:
    """It goes by one name for each reader, and no other. Raises OSError where files cannot have
    several names."""
    names = {reader: _name(segment.path, reader) for reader in readers}
    try:
        for name in names.values():
            os.link(segment.path, name)
    except OSError:
        for name in names.values():
            name.unlink(missing_ok=True)
        raise
    finally:
        segment.unlink()
    return segment, names


def _room(tensor: Tensor) -> int:
    return math.ceil(tensor.nbytes / ALIGNMENT) * ALIGNMENT


def _pipe(base: Path, writer: int, reader: int) -> Path:
    return base.with_name(f"{base.name}.{writer}-{reader}")


def _name(segment: Path, reader: int) -> Path:
    return segment.with_name(f"{segment.name}.{reader}")
