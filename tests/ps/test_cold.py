"""Rows on disk: the same bits as all in memory, and clear errors when the disk fails."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from heterps.errors import StoreError
from heterps.ps import RULES, SparseTable
from heterps.testing.tables import assert_same_rows

ROWS, DIM = 20_000, 16


def tables(folder, rule="rowwise_adagrad", share=4, **settings):
    """One all in memory, and one that may hold a part of that."""
    hot = SparseTable(DIM, rule, **settings)
    fill(hot)
    budget = int(hot.stats()["memory_bytes"]) // share
    cold = SparseTable(DIM, rule, memory_bytes=budget, path=folder, **settings)
    fill(cold)
    return hot, cold


def fill(table):
    for first in range(0, ROWS, 2000):
        ids = np.arange(first, first + 2000)
        table.push(ids, np.sin(np.arange(2000 * DIM, dtype=np.float32)).reshape(2000, DIM))


def batches(count, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        ids = rng.zipf(1.1, 3000) % (ROWS + 500)
        yield ids, rng.normal(size=(3000, DIM)).astype(np.float32)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ahead", [0, 4])
def test_rows_on_disk_train_to_the_same_bits(tmp_path, rule, ahead):
    hot, cold = tables(tmp_path, rule)
    assert cold.stats()["cold_rows"] > ROWS // 2
    todo = list(batches(12))
    for at, (ids, grads) in enumerate(todo):
        if ahead and at + ahead < len(todo):
            cold.prefetch(todo[at + ahead][0])
        assert hot.pull(ids).tobytes() == cold.pull(ids).tobytes()
        for table in (hot, cold):
            table.push(ids, grads)
    assert_same_rows(hot._store, cold._store)


@pytest.mark.parametrize("share", [2, 10, 10_000])
def test_any_budget_gives_the_same_bits_also_with_limits(tmp_path, share):
    limits = {"admission": 2, "evict_after": 15, "max_rows": ROWS // 2}
    hot, cold = tables(tmp_path, share=share, **limits)
    for ids, grads in batches(12):
        for table in (hot, cold):
            table.push(ids, grads)
    assert_same_rows(hot._store, cold._store)


def test_the_memory_stays_within_the_budget(tmp_path):
    hot, cold = tables(tmp_path)
    for ids, grads in batches(5):
        cold.push(ids, grads)
    assert cold.stats()["hot_rows"] < 0.5 * ROWS
    assert cold.stats()["memory_bytes"] < 0.5 * hot.stats()["memory_bytes"]


def test_stats_say_what_the_disk_did(tmp_path):
    _, cold = tables(tmp_path)
    before = cold.stats()
    cold.pull(np.arange(ROWS))
    stats = cold.stats()
    assert stats["cold_rows"] + stats["hot_rows"] == ROWS
    assert stats["cold_reads"] > before["cold_reads"]
    assert stats["cold_read_bytes"] > before["cold_read_bytes"]
    assert stats["cold_written_bytes"] > 0


def test_prefetched_rows_are_in_memory_when_they_are_pulled(tmp_path):
    _, cold = tables(tmp_path)
    before = cold.stats()
    ids = np.arange(300)  # a small part of what fits, as coming batches should be
    cold.prefetch(ids)
    cold.drain()
    cold.pull(ids)
    assert cold.stats()["misses"] == before["misses"]
    assert cold.stats()["hits"] == 300


def test_a_snapshot_holds_the_rows_on_disk_too(tmp_path):
    hot, cold = tables(tmp_path / "scratch")
    cold.save(tmp_path / "s")
    loaded = SparseTable(DIM)
    loaded.load(tmp_path / "s")
    assert_same_rows(hot._store, loaded._store)
    small = SparseTable(DIM, memory_bytes=200_000, path=tmp_path / "scratch")
    small.load(tmp_path / "s")
    assert small.stats()["cold_rows"] > 0
    assert_same_rows(hot._store, small._store)


def test_a_closed_table_leaves_no_file(tmp_path):
    _, cold = tables(tmp_path)
    cold.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_memory_does_as_well():
    """A tmpfs may refuse to read past the page cache."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        hot, cold = tables(folder)
        assert_same_rows(hot._store, cold._store)


FULL_DISK = """
import resource
import sys
import tempfile
import numpy as np
from heterps.errors import StoreError
from heterps.ps import SparseTable
from heterps.testing.tables import assert_same_rows

hot = SparseTable(16)
cold = SparseTable(16, memory_bytes=400_000, path=sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
rng = np.random.default_rng(0)
failures = 0
for _ in range(60):
    ids = rng.integers(0, 40_000, 1000)
    grads = rng.normal(size=(1000, 16)).astype(np.float32)
    try:
        cold.push(ids, grads)
    except StoreError as error:
        failures += 1
        message = str(error)
    else:
        hot.push(ids, grads)
assert failures, "the disk was never full"
assert_same_rows(hot._store, cold._store)
print(message)
"""


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path):
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert str(tmp_path) in result.stdout


def test_a_torn_file_is_an_error_never_wrong_rows(tmp_path):
    hot, cold = tables(tmp_path)
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.is_file() and str(tmp_path) in str(descriptor.readlink()):
            os.truncate(descriptor, 0)
    ids = np.arange(ROWS)
    with pytest.raises(StoreError, match="torn"):
        cold.pull(ids)
    intact = 0
    for key in range(0, ROWS, 50):
        try:
            assert cold.pull([key]).tobytes() == hot.pull([key]).tobytes()
            intact += 1
        except StoreError:
            continue
    assert intact
    assert cold.step == hot.step


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file/x"):
        SparseTable(DIM, memory_bytes=1000, path=tmp_path / "file" / "x")
