"""A dense tensor that lives on a server, with the verbs of ``DenseTensor``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heterps.ps.arrays import out_of, rows_of
from heterps.ps.calls import Joint, Reply
from heterps.ps.pool import Pool, encoded
from heterps.ps.protocol import DenseSpec
from heterps.wire.frames import Buffer, as_buffer

if TYPE_CHECKING:
    from heterps.ps.client import Client

Floats = NDArray[np.float32]
_DTYPE = "f4"  # whatever rows travel as: what is pulled becomes the weights of a run


class RemoteTensor:
    """A dense tensor on the one shard that its name falls to; made by ``Client.create_tensor``."""

    def __init__(self, client: Client, name: str, shape: tuple[int, ...]) -> None:
        self._client = client
        self.name = name
        self.shape = shape
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self.shard = int.from_bytes(digest, "big") % client.shards

    def create(self, values: Any, spec: DenseSpec) -> None:
        sent = as_buffer(rows_of(values, self.shape, "values"))
        self._call("dense_create", {"spec": spec.as_fields()}, [sent]).result()

    def pull(self, out: Any = None, timeout_s: float | None = None) -> Floats:
        """The values; into ``out`` if it is given."""
        return self.pull_async(out, timeout_s).result()

    def pull_async(self, out: Any = None, timeout_s: float | None = None) -> Future[Floats]:
        target = np.empty(self.shape, np.float32) if out is None else out_of(out, self.shape)
        pool = self._client.link(self.shard).pool

        def take(reply: Reply) -> Floats:
            target[...] = reply.arrays[0]
            return target

        place = pool.take(_DTYPE, self.shape)
        return self._call("dense_pull", {"dtype": _DTYPE}, [], take, place, pool, timeout_s)

    def push(self, grads: Any, lr: float | None = None, timeout_s: float | None = None) -> None:
        """One step of the rule."""
        self.push_async(grads, lr, timeout_s).result()

    def push_async(
        self, grads: Any, lr: float | None = None, timeout_s: float | None = None
    ) -> Future[Any]:
        pool = self._client.link(self.shard).pool
        sent = encoded(pool, _DTYPE, rows_of(grads, self.shape))
        return self._call("dense_push", {"lr": lr}, [sent], pool=pool, timeout_s=timeout_s)

    def _call(
        self,
        verb: str,
        fields: Mapping[str, Any],
        buffers: list[Buffer],
        take: Callable[[Reply], Any] = lambda reply: None,
        out: Buffer | None = None,
        pool: Pool | None = None,
        timeout_s: float | None = None,
    ) -> Future[Any]:
        joint = Joint(1, lambda results: results[0])
        fields = {"tensor": self.name, **fields}
        self._client.call(
            self.shard, verb, fields, joint.part(0, take), buffers, out, pool, timeout_s
        )
        return joint.future
