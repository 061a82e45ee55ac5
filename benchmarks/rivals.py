"""What the parameter server is measured against: torch, FBGEMM and Redis, on the same ids."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

LR, EPS = 0.05, 1e-10


RowAdd = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def index_add(target: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> None:
    target.index_add_(0, ids, rows)


def scatter_add(target: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> None:
    """The same; torch has a quicker path for it on some machines."""
    target.scatter_add_(0, ids[:, None].expand_as(rows), rows)


class DenseTorch:
    """A dense table: its row numbers are the ids, so it needs no hash, and cannot grow."""

    def __init__(self, rows: int, dim: int) -> None:
        self.weight = torch.zeros(rows, dim)
        self.sums = torch.zeros(rows)
        self.weight += 0.01  # touched, so that it is in memory

    def pull(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        torch.index_select(self.weight, 0, ids, out=out)

    def add(self, ids: torch.Tensor, grads: torch.Tensor) -> None:
        self.weight.index_add_(0, ids, grads)

    def pull_and_push(
        self, ids: torch.Tensor, out: torch.Tensor, grads: torch.Tensor, add: RowAdd = index_add
    ) -> None:
        """Lookup and row-wise Adagrad, each distinct row once."""
        distinct, inverse = torch.unique(ids, return_inverse=True)
        rows = self.weight.index_select(0, distinct)
        torch.index_select(rows, 0, inverse, out=out)
        summed = torch.zeros_like(rows)
        add(summed, inverse, grads)
        self.sums.index_add_(0, distinct, summed.square().mean(dim=1))
        scale = -LR / (self.sums.index_select(0, distinct).sqrt_() + EPS)
        add(self.weight, distinct, summed.mul_(scale[:, None]))


def make_fbgemm(tables: int, rows: int, dim: int) -> Any:
    """FBGEMM's table-batched embedding with its fused row-wise Adagrad, or None."""
    try:
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )
    except ImportError:
        return None
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * tables,
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=LR,
        eps=EPS,
    )


class Redis:
    """A connection that speaks just enough of the protocol, so that no client is in the way."""

    def __init__(self, path: str, value_bytes: int) -> None:
        self.value_bytes = value_bytes
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)

    def mget(self, ids: np.ndarray) -> bytes:
        request = self._command(b"MGET", [int(i).to_bytes(8, "little") for i in ids])
        head = len(b"*%d\r\n" % len(ids))
        each = len(b"$%d\r\n" % self.value_bytes) + self.value_bytes + 2
        return self._ask(request, head + each * len(ids))

    def mset(self, ids: np.ndarray, value: bytes) -> bytes:
        words = [word for i in ids for word in (int(i).to_bytes(8, "little"), value)]
        return self._ask(self._command(b"MSET", words), len(b"+OK\r\n"))

    def seconds_of(self, verb: str, ids: np.ndarray, value: bytes) -> float:
        """The server's and the socket's time; the request is put together beforehand."""
        self.spent = 0.0
        for part in np.array_split(ids, max(len(ids) // 10_000, 1)):
            self.mget(part) if verb == "mget" else self.mset(part, value)
        return self.spent

    def _command(self, verb: bytes, words: list[bytes]) -> bytes:
        parts = [b"*%d\r\n" % (len(words) + 1)]
        for word in (verb, *words):
            parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
        return b"".join(parts)

    def _ask(self, request: bytes, size: int) -> bytes:
        started = time.perf_counter()
        self._socket.sendall(request)
        answer = bytearray(size)
        view = memoryview(answer)
        while view:
            view = view[self._socket.recv_into(view) :]
        self.spent = getattr(self, "spent", 0.0) + time.perf_counter() - started
        assert answer[:1] != b"-", answer[:200]
        return bytes(answer)


@contextmanager
def redis_server(value_bytes: int) -> Iterator[Redis | None]:
    """A Redis of our own on a unix socket, without persistence; None if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "socket")
        settings = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
        process = subprocess.Popen([program, *settings], stdout=subprocess.DEVNULL)
        try:
            while not Path(path).exists():
                time.sleep(0.01)
            yield Redis(path, value_bytes)
        finally:
            process.terminate()
            process.wait()
