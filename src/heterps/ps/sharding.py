"""Which bucket an id falls into, and which shard owns a bucket.

The hash and the number of buckets are fixed for good: a snapshot is cut by bucket, and so can be
loaded into any number of shards.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from heterps.errors import InputError

BUCKETS = 1024
_BUCKET_BITS = 10
_SALT = np.uint64(0x2545F4914F6CDD1D)


def mix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A fixed permutation of the 64-bit numbers in which every bit of the input counts."""
    x: npt.NDArray[np.uint64] = values ^ (values >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def bucket_of(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    """The bucket, from 0 to ``BUCKETS`` - 1, of every id of a vector."""
    hashed = mix64(np.atleast_1d(ids).view(np.uint64) ^ _SALT)
    return (hashed >> np.uint64(64 - _BUCKET_BITS)).astype(np.uint16)


def shard_of(ids: npt.NDArray[np.int64], shards: int) -> npt.NDArray[np.int64]:
    """The shard that owns every id of a vector."""
    return bucket_of(ids).astype(np.int64) * shards // BUCKETS


def buckets_of(shard: int, shards: int) -> range:
    """The buckets of a shard: contiguous, and none or one more than an equal share."""
    if not 1 <= shards <= BUCKETS:
        raise InputError("shards", f"expected 1 to {BUCKETS}, got {shards}")
    if not 0 <= shard < shards:
        raise InputError("shard", f"expected 0 to {shards - 1}, got {shard}")
    return range(-(-shard * BUCKETS // shards), -(-(shard + 1) * BUCKETS // shards))
