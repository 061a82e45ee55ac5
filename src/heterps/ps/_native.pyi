from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

class StoreError(Exception):
    """The cold file or the disk under it failed."""

class Table:
    def __init__(
        self,
        *,
        dim: int,
        rule: str,
        lr: float,
        options: Mapping[str, float] | None = None,
        initial: str = "zeros",
        scale: float = 0.0,
        seed: int = 0,
        threads: int = 0,
        memory_bytes: int = 0,
        path: str = "",
        admission: int = 0,
        evict_after: int = 0,
        max_rows: int = 0,
        staleness: int = 0,
    ) -> None: ...
    @property
    def dim(self) -> int: ...
    @property
    def state_width(self) -> int: ...
    @property
    def cold_error(self) -> str:
        """Why the cold file could last not be written; empty if it could."""

    def pull(self, ids: NDArray[np.int64], out: NDArray[np.float32]) -> None: ...
    def push(
        self, ids: NDArray[np.int64], grads: NDArray[np.float32], lr: float | None = None
    ) -> None: ...
    def announce(self, batch: int, parts: int, lr: float | None = None) -> None: ...
    def accumulate(
        self,
        batch: int,
        micro_batch: int,
        layer: int,
        ids: NDArray[np.int64],
        grads: NDArray[np.float32],
    ) -> bool: ...
    def wait(self, batch: int, timeout_s: float = 0.0) -> bool: ...
    def prefetch(self, ids: NDArray[np.int64]) -> None: ...
    def drain(self) -> None: ...

    committed: int
    lr: float
    step: int

    def __len__(self) -> int: ...
    def stats(self) -> dict[str, float]: ...
    def capture(self, since_step: int = -1) -> Capture: ...
    def restore(
        self,
        ids: NDArray[np.int64],
        values: NDArray[np.float32],
        state: NDArray[np.float32],
        frequency: NDArray[np.uint32],
        last_seen: NDArray[np.uint32],
    ) -> None: ...
    def restore_pending(
        self, ids: NDArray[np.int64], counts: NDArray[np.uint32], last_seen: NDArray[np.uint32]
    ) -> None: ...
    def remove(self, ids: NDArray[np.int64]) -> None: ...

class Capture:
    @property
    def rows(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def removed(self) -> NDArray[np.int64]: ...
    @property
    def bucket_counts(self) -> NDArray[np.uint64]: ...
    @property
    def pending_ids(self) -> NDArray[np.int64]: ...
    @property
    def pending_counts(self) -> NDArray[np.uint32]: ...
    @property
    def pending_last_seen(self) -> NDArray[np.uint32]: ...
    def next(
        self, max_rows: int
    ) -> (
        tuple[
            NDArray[np.int64],
            NDArray[np.float32],
            NDArray[np.float32],
            NDArray[np.uint32],
            NDArray[np.uint32],
        ]
        | None
    ): ...
    def finish(self, ok: bool) -> None: ...

class Dense:
    def __init__(
        self,
        *,
        values: NDArray[np.float32],
        rule: str,
        lr: float,
        options: Mapping[str, float] | None = None,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def state_width(self) -> int: ...

    lr: float
    step: int

    def pull(self, out: NDArray[np.float32]) -> None: ...
    def push(self, grads: NDArray[np.float32], lr: float | None = None) -> None: ...
    def read_state(self, out: NDArray[np.float32]) -> None: ...
    def restore(
        self, values: NDArray[np.float32], state: NDArray[np.float32], step: int
    ) -> None: ...

def bucket_of(ids: NDArray[np.int64]) -> NDArray[np.uint16]: ...
def route(
    ids: NDArray[np.int64], shards: int, distinct: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ids by shard, where each shard's begin, and each asked id's index among them."""

def initial_rows(
    ids: NDArray[np.int64], initial: str, scale: float, seed: int, out: NDArray[np.float32]
) -> None: ...
def sum_duplicates(
    grads: NDArray[np.float32], inverse: NDArray[np.int64], sums: NDArray[np.float32]
) -> None: ...
def gather(
    rows: NDArray[np.float32], inverse: NDArray[np.int64], out: NDArray[np.float32]
) -> None: ...
def to_bf16(values: NDArray[np.float32], out: NDArray[np.uint16]) -> None: ...
def from_bf16(values: NDArray[np.uint16], out: NDArray[np.float32]) -> None: ...
def to_fp16(values: NDArray[np.float32], out: NDArray[np.uint16]) -> None: ...
def from_fp16(values: NDArray[np.uint16], out: NDArray[np.float32]) -> None: ...
