import numpy as np
import pytest

from heterps.errors import InputError
from heterps.ps.sharding import BUCKETS, bucket_of, buckets_of, mix64, shard_of

IDS = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 5000)


def mix64_of(x: int) -> int:
    """The same in Python's own whole numbers."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % 2**64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def test_the_hash_is_the_written_one():
    given = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)
    assert mix64(given).tolist() == [mix64_of(int(x)) for x in given]


def test_the_bucket_of_an_id_never_changes():
    assert bucket_of(np.array([0, 1, -1, 2**63 - 1])).tolist() == [
        mix64_of((x % 2**64) ^ 0x2545F4914F6CDD1D) >> 54 for x in (0, 1, -1, 2**63 - 1)
    ]


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 7, 1000, 1024])
def test_every_bucket_belongs_to_one_shard_and_shares_are_equal(shards):
    owned = [buckets_of(shard, shards) for shard in range(shards)]
    assert [b for buckets in owned for b in buckets] == list(range(BUCKETS))
    assert max(map(len, owned)) - min(map(len, owned)) <= 1


@pytest.mark.parametrize("shards", [1, 4, 7])
def test_an_id_goes_to_the_shard_that_owns_its_bucket(shards):
    for bucket, shard in zip(bucket_of(IDS), shard_of(IDS, shards), strict=True):
        assert bucket in buckets_of(int(shard), shards)


@pytest.mark.parametrize(("shard", "shards", "path"), [(1, 1, "shard"), (0, 1025, "shards")])
def test_an_impossible_shard_is_refused(shard, shards, path):
    with pytest.raises(InputError) as caught:
        buckets_of(shard, shards)
    assert caught.value.path == path
