import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from heterps.data.batch import Batch, batch_bytes, samples
from heterps.data.dataset import Dataset
from heterps.data.lane_plan import LanePlan, lanes_of_replica
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.errors import InputError
from heterps.job.data import DataSpec

pytestmark = pytest.mark.slow  # imports torch

FILES = ([40, 40, 25], [40], [13])  # rows of the row groups


def opened(spec: DataSpec, lanes: int = 4, size: int = 7, seed: int = 1, **options) -> Lanes:
    data = Dataset.open(spec)
    plan = LanePlan(data.samples, lanes, size, 3)
    return data, Lanes(plan, data.sizes, seed, **options)


def numbers(batch: Batch) -> list[int]:
    return batch["dense"][:, 0].to(torch.int64).tolist()


def test_an_epoch_holds_every_sample_once_and_micro_batches_match_the_lanes(numbered):
    data, lanes = opened(numbered(*FILES))
    reader = LaneReader(data, lanes, range(4))
    starts = np.concatenate([[0], np.cumsum(data.sizes)])
    for epoch in range(2):
        seen = []
        for j in range(epoch * lanes.plan.per_epoch, (epoch + 1) * lanes.plan.per_epoch):
            found = numbers(reader.micro_batch(j))
            assert found == [
                int(starts[group] + row)
                for group, start, stop in lanes.pieces_of(j)
                for row in lanes.rows(epoch, group)[start:stop]
            ]
            seen += found
        assert sorted(seen) == list(range(158))
        assert seen != sorted(seen)


def test_the_columns_of_a_sample_stay_together(numbered):
    spec = numbered(*FILES)
    data, lanes = opened(spec)
    ids = {int(x): int(i) for g in range(5) for x, i in zip(*read(data, g), strict=True)}
    for j in range(lanes.plan.per_epoch):
        batch = LaneReader(data, lanes, range(4)).micro_batch(j)
        assert batch["label"].tolist() == [number % 2 for number in numbers(batch)]
        assert batch["C1"].tolist() == [ids[number] for number in numbers(batch)]


def read(data: Dataset, group: int) -> tuple[list[float], list[int]]:
    columns = data.read(group)
    return columns.dense[:, 0].tolist(), columns.ids[0].tolist()


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
@pytest.mark.parametrize("start", [0, 11, 40])
def test_replicas_and_resumed_readers_give_the_same_micro_batches(numbered, replicas, start):
    data, lanes = opened(numbered(*FILES))
    one = LaneReader(data, lanes, range(4))
    for replica in range(replicas):
        reader = LaneReader(data, lanes, lanes_of_replica(replica, replicas, 4))
        for j in itertools.islice(reader.numbers(start), 20):
            assert numbers(reader.micro_batch(j)) == numbers(one.micro_batch(j))


def test_tensors_are_contiguous_and_of_the_agreed_types(numbered):
    data, lanes = opened(numbered(*FILES, weight="I1", dense=["C1"]))
    for j in range(lanes.plan.per_epoch):
        batch = LaneReader(data, lanes, range(4)).micro_batch(j)
        n = samples(batch)
        found = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in batch.items()}
        assert found == {
            "label": (torch.float32, (n,)),
            "weight": (torch.float32, (n,)),
            "dense": (torch.float32, (n, 1)),
            "C1": (torch.int64, (n,)),
        }
        assert all(tensor.is_contiguous() for tensor in batch.values())
        assert batch_bytes(batch) == n * 20


def test_bags_are_joined_across_row_groups(parquet):
    lists = [list(range(i % 4)) for i in range(30)]
    path = parquet("a.parquet", {"label": range(30), "tags": lists}, 5)
    slot = {"name": "tags", "multi": True}
    spec = DataSpec.parse({"train": str(path), "sparse": [slot]})
    data, lanes = opened(spec, lanes=2, size=8)
    reader = LaneReader(data, lanes, range(2))
    for j in range(lanes.plan.per_epoch):
        batch = reader.micro_batch(j)
        offsets = batch["tags.offsets"]
        assert offsets[0] == 0
        assert offsets.diff().tolist() == [int(label) % 4 for label in batch["label"]]
        assert len(batch["tags"]) == offsets[-1]
        assert batch["dense"].shape == (samples(batch), 0)
        bags = [bag.tolist() for bag in torch.tensor_split(batch["tags"], offsets[1:-1])]
        longest = max(bags, key=len)
        assert all(bag == longest[: len(bag)] for bag in bags)


class CountingDataset(Dataset):
    reads: list[int]

    def read(self, row_group, order=None):
        self.reads.append(row_group)
        return super().read(row_group, order)


@pytest.mark.parametrize(("cache_bytes", "most"), [(1 << 30, 5), (0, 9)])
def test_a_row_group_on_a_cut_is_kept_for_the_other_lane_while_there_is_room(
    numbered, cache_bytes: int, most: int
):
    spec = numbered(*FILES)
    data = CountingDataset.open(spec)
    data.reads = []
    plan = LanePlan(data.samples, 4, 7, 3)
    reader = LaneReader(data, Lanes(plan, data.sizes, 1), range(4), cache_bytes=cache_bytes)
    sizes = []
    for j in range(plan.per_epoch):
        reader.micro_batch(j)
        sizes.append(reader.held_bytes)
    assert set(data.reads) == set(range(5))
    assert 5 <= len(data.reads) <= most
    assert sizes[-1] == 0  # nothing is kept past its last reader
    assert max(sizes) > 0


def test_an_empty_batch_is_made_of_empty_slices(numbered):
    from heterps.data.batch import Slice, make_batch

    batch = make_batch([Slice(Dataset.open(numbered([4])).read(0), 2, 2)])
    assert samples(batch) == 0
    assert batch["dense"].shape == (0, 1)


def test_a_file_that_breaks_while_reading_is_named(numbered):
    spec = numbered(*FILES)
    data, lanes = opened(spec)
    path = Path(spec.train[0]).parent / "part-1.parquet"
    path.write_bytes(b"")
    reader = LaneReader(data, lanes, range(4))
    with pytest.raises(InputError, match=r"part-1\.parquet: row group 0 cannot be read"):
        list(map(reader.micro_batch, range(lanes.plan.per_epoch)))
