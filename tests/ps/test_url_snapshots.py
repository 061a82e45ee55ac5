"""Snapshots of server processes on real servers of files, where each writes its own part."""

import fsspec
import numpy as np
import pytest

from heterps.errors import SnapshotError
from heterps.ps.protocol import DenseSpec, TableSpec
from heterps.ps.snapshots import open_snapshot
from heterps.ps.table import SparseTable
from heterps.storage.places import place
from heterps.testing.servers import serving

pytestmark = pytest.mark.slow
IDS = np.arange(300)
SPEC = TableSpec(dim=4, rule="adam", lr=0.1, admission=2)


def push(table, seed):
    ids = np.random.default_rng(seed).integers(0, len(IDS), 100)
    table.push(ids, np.random.default_rng(seed).normal(size=(100, 4)).astype(np.float32))


def test_whole_ones_and_deltas_go_to_a_url_and_come_back_to_other_servers(far_folder, tmp_path):
    with serving(tmp_path, 3) as client:
        table = client.create_table("t", SPEC)
        tensor = client.create_tensor("w", np.ones((2, 3), np.float32), DenseSpec())
        push(table, 1)
        client.save(f"{far_folder}/a/tables")
        push(table, 2)
        client.capture(delta_of=f"{far_folder}/a/tables")
        rows = table.pull(IDS)
        push(table, 3)
        client.save(f"{far_folder}/b/tables", delta_of=f"{far_folder}/a/tables")
    found = open_snapshot(f"{far_folder}/b/tables")
    found.verify()
    assert [len(held.chain()) for held in found.chain()] == [1, 2]
    with serving(tmp_path, 2) as client:
        table = client.create_table("t", SPEC)
        tensor = client.create_tensor("w", np.zeros((2, 3), np.float32), DenseSpec())
        client.load(f"{far_folder}/b/tables")
        np.testing.assert_array_equal(table.pull(IDS), rows)
        assert tensor.pull().tolist() == [[1.0] * 3] * 2


def saved(url):
    table = SparseTable(4, "sgd")
    push(table, 1)
    table.save(url)
    return table


def test_nothing_is_overwritten_and_what_is_damaged_is_named(hdfs):
    url = f"{hdfs}/tables"
    table = saved(url)
    with pytest.raises(SnapshotError, match="exists already"):
        table.save(url)
    name = next(name for name in place(url).files() if name.startswith("table/rows-"))
    file_system, path = fsspec.core.url_to_fs(f"{url}/{name}")
    content = bytearray(file_system.cat_file(path))
    content[len(content) // 2] ^= 1
    file_system.pipe_file(path, bytes(content))
    open_snapshot(url).verify_sizes()
    for look in (open_snapshot(url).verify, lambda: SparseTable(4, "sgd").load(url)):
        with pytest.raises(SnapshotError, match=rf"{url}/{name}: its checksum differs"):
            look()
    file_system.rm(path)
    with pytest.raises(SnapshotError, match=rf"{url}/{name}: the file is missing"):
        open_snapshot(url).verify_sizes()


def test_what_cannot_be_published_leaves_nothing(hdfs, monkeypatch):
    url = f"{hdfs}/tables"
    monkeypatch.setattr("heterps.ps.snapshots.BUCKETS", 7)
    with pytest.raises(SnapshotError, match="leave out or repeat buckets"):
        saved(url)
    assert place(url).files() == {}
