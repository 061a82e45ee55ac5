"""The replicas of a stage: how they sum their gradients, once a batch.

Between hosts ``torch.distributed`` does it. Its connections carry no authentication, so under
encryption our own channels do: replica 0 adds up in the order of replicas, and everybody gets its
sum. Replicas of one host share memory for it (``SharedGroup``).
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from heterps.errors import WorkerLostError
from heterps.runtime.channel import Mesh
from heterps.wire.keys import subkey
from heterps.wire.wake import Source

_TIMEOUT_S = 600.0  # who is dead or frozen is found by the coordinator, long before
_ROOT = (1, 0)
_dist: Any = dist  # torch declares too little of it


class ReplicaGroup(ABC):
    """Sums tensors over the replicas of a stage; all of them call it alike. The result is the same
    on every one to the bit. ``beside``: a sum that was begun goes on beside other work."""

    beside: ClassVar[bool] = False

    @abstractmethod
    def sum(self, tensors: Sequence[Tensor], *, nothing: bool = False) -> None:
        """In place; ``nothing`` says that all numbers of this replica are zero."""

    def begin(
        self, tensors: Sequence[Tensor], ready: Callable[[], None], *, nothing: bool = False
    ) -> Callable[[], None]:
        """The same in two steps: what this returns puts the sum in place, and does not wait for
        others once ``ready`` was called, by any thread. Where nothing runs ``beside``, that last
        step is all of it."""
        ready()
        return lambda: self.sum(tensors, nothing=nothing)

    @property
    def sources(self) -> Sequence[Source]:
        """What the replica's thread has to wait for beside all else, for ``ready`` to be called."""
        return ()

    def close(self) -> None:
        """Lets go of the connections."""
        return


class Alone(ReplicaGroup):
    """A stage of one replica."""

    def sum(self, tensors: Sequence[Tensor], *, nothing: bool = False) -> None:
        pass


class GlooGroup(ReplicaGroup):
    """By torch.distributed, which has threads of its own. ``store`` is where the replicas find each
    other, ``host`` the address of this machine that they use."""

    beside = True

    def __init__(
        self, store: Any, generation: int, stage: int, replica: int, replicas: int, host: str
    ) -> None:
        self._place = (stage, replica)
        gloo = _dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=host)]
        options._timeout = timedelta(seconds=_TIMEOUT_S)
        prefix = f"generation-{generation}-stage-{stage}"
        self._group = gloo(_dist.PrefixStore(prefix, store), replica, replicas, options)
        self._store = store

    def sum(self, tensors: Sequence[Tensor], *, nothing: bool = False) -> None:
        self.begin(tensors, lambda: None)()

    def begin(
        self, tensors: Sequence[Tensor], ready: Callable[[], None], *, nothing: bool = False
    ) -> Callable[[], None]:
        parts = []
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            own = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in own]).cpu()
            with self._naming():
                parts.append((own, flat, self._group.allreduce([flat])))
        _tell_when_done([work for _, _, work in parts], ready)

        def finish() -> None:
            for own, flat, work in parts:
                with self._naming():
                    work.wait()
                _spread(flat, own)

        return finish

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """What torch says of a group that fell apart, as an error of this worker's place."""
        try:
            yield
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            raise WorkerLostError(*self._place, f"its replicas do not sum up: {said}") from None


class ChannelGroup(ReplicaGroup):
    """By our own channels. ``address`` is where replica 0 listens, or what it listens on."""

    def __init__(
        self, key: bytes, generation: int, stage: int, replica: int, *, encrypt: bool = False
    ) -> None:
        own = subkey(key, "sum", stage.to_bytes(4, "big"))
        self._replica = replica
        self._stage = stage
        self._others = 0
        self._turn = 0
        self._mesh = Mesh(own, generation, _ROOT if replica == 0 else (0, replica), encrypt=encrypt)

    def listen(self, address: str, replicas: int) -> str:
        """Replica 0 alone."""
        self._others = replicas - 1
        return self._mesh.listen(address)

    def await_others(self, timeout_s: float = 60.0) -> None:
        """Replica 0 alone: until all have connected."""
        deadline = time.monotonic() + timeout_s
        while len(self._mesh.before) < self._others:
            self._mesh.receive(0.1)
            if time.monotonic() > deadline:
                problem = f"not all of its replicas connected in {timeout_s:g} s"
                raise WorkerLostError(self._stage, self._replica, problem)

    def connect(self, address: str) -> None:
        """The others."""
        self._mesh.connect({_ROOT: address})

    def sum(self, tensors: Sequence[Tensor], *, nothing: bool = False) -> None:
        if not tensors:
            return
        wide = max((t.dtype for t in tensors), key=lambda dtype: dtype.itemsize)
        flat = torch.cat([tensor.reshape(-1).to("cpu", wide) for tensor in tensors])
        self._turn += 1
        if self._replica == 0:
            self._add_up(flat)
        else:
            self._mesh.send_forward(0, self._turn, {"sum": flat})
            flat = self._next(1)[0]
        _spread(flat, tensors)

    def close(self) -> None:
        self._mesh.close()

    def _add_up(self, flat: Tensor) -> None:
        """In the order of replicas, whoever comes first."""
        parts = self._next(self._others)
        for replica in sorted(parts):
            flat += parts[replica]
        for replica in sorted(parts):
            self._mesh.send_back(replica, self._turn, {"sum": flat})

    def _next(self, count: int) -> dict[int, Tensor]:
        """What ``count`` others say this turn; a replica that is ahead has said one more at most,
        since it waits for the sum."""
        found: dict[int, Tensor] = {}
        while len(found) < count:
            arrived = self._mesh.receive(_TIMEOUT_S)
            if not arrived:
                problem = f"a replica of it did not sum up in {_TIMEOUT_S:g} s"
                raise WorkerLostError(self._stage, self._replica, problem)
            for message in arrived:
                assert message.micro_batch == self._turn
                found[message.replica] = message.tensors["sum"]
        return found


def _tell_when_done(works: Sequence[Any], ready: Callable[[], None]) -> None:
    """They may end in any order, and in any thread of torch's."""
    done = itertools.count(1)

    def one_more(_: object) -> None:
        if next(done) == len(works):
            ready()

    for work in works:
        work.get_future().add_done_callback(one_more)
    if not works:
        ready()


def _spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    start = 0
    for tensor in tensors:
        part = flat[start : start + tensor.numel()]
        tensor.copy_(part.view_as(tensor))
        start += tensor.numel()
