"""Snapshots: whole or refused, into any number of shards, and the table goes on bit for bit."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from heterps.errors import InputError, SnapshotError
from heterps.ps.initial import Normal
from heterps.ps.manifests import MANIFEST
from heterps.ps.rules import RULES
from heterps.ps.sharding import bucket_of, shard_of
from heterps.ps.snapshots import Partial, open_snapshot
from heterps.testing.snapshots import flip
from heterps.testing.tables import STORES, assert_same_rows, make_table

DIM = 3


@pytest.fixture(params=STORES)
def make(request):
    def make(**settings):
        settings = {"rule": "adam", "initial": Normal(0.1), **settings}
        return make_table(request.param, DIM, **settings)

    return make


def traffic(seed: int, count: int = 10, ids: int = 3000):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        asked = rng.zipf(1.3, 400) % ids
        yield asked, rng.normal(size=(400, DIM)).astype(np.float32)


def train(tables, seed: int, **settings) -> None:
    """The same traffic on one table or on shards."""
    for ids, grads in traffic(seed, **settings):
        owner = shard_of(ids, len(tables))
        for shard, table in enumerate(tables):
            table.push(ids[owner == shard], grads[owner == shard])


def same(one, other) -> None:
    assert_same_rows(one._store, other._store)
    assert one.lr == other.lr


@pytest.mark.parametrize("rule", RULES)
def test_a_loaded_table_goes_on_as_if_nothing_had_happened(make, tmp_path, rule):
    settings = {"rule": rule, "admission": 2, "evict_after": 6, "max_rows": 300}
    table, loaded = make(**settings), make(**settings)
    train([table], 1)
    table.lr = 0.03
    table.save(tmp_path / "s")
    loaded.load(tmp_path / "s")
    same(table, loaded)
    for each in (table, loaded):
        train([each], 2)
    same(table, loaded)


def test_batches_go_on_where_the_snapshot_was_taken(make, tmp_path):
    table, loaded = make(), make()
    table.announce(0, 1)
    table.accumulate(0, (0, 0), [1], np.ones((1, DIM), np.float32))
    table.save(tmp_path / "s")
    loaded.load(tmp_path / "s")
    assert loaded.committed == 0
    assert not loaded.accumulate(0, (0, 0), [1], np.ones((1, DIM), np.float32))
    loaded.announce(1, 0)
    assert loaded.committed == 1


def save_shards(tables, path, base=None):
    with Partial(path) as partial:
        parts = [
            table.save_part(partial.folder, "t", shard, len(tables), delta_of=base)
            for shard, table in enumerate(tables)
        ]
        parts = json.loads(json.dumps(parts))  # they come from other processes
        identity = partial.publish(reversed(parts), base)
    for table in tables:
        table.conclude_save(identity)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_four_shards_load_into_any_number(make, tmp_path, count):
    four, whole = [make(admission=2) for _ in range(4)], make(admission=2)
    train(four, 1)
    train([whole], 1)
    save_shards(four, tmp_path / "s")
    loaded = [make(admission=2) for _ in range(count)]
    for shard, table in enumerate(loaded):
        table.load(tmp_path / "s", shard, count, name="t")
    assert sum(map(len, loaded)) == len(whole)
    train(loaded, 2)
    train([whole], 2)
    ids = np.arange(3000)
    rows = np.empty((3000, DIM), np.float32)
    for shard, table in enumerate(loaded):
        mine = shard_of(ids, count) == shard
        rows[mine] = table.pull(ids[mine])
    assert rows.tobytes() == whole.pull(ids).tobytes()


def test_a_chain_of_deltas_equals_the_table(make, tmp_path):
    settings = {"admission": 2, "evict_after": 8, "max_rows": 200}
    table, loaded = make(**settings), make(**settings)
    train([table], 1)
    table.save(tmp_path / "0")
    for delta in range(1, 4):
        train([table], delta + 1, count=3, ids=500)
        table.save(tmp_path / f"{delta}", delta_of=tmp_path / f"{delta - 1}")
    loaded.load(tmp_path / "3")
    same(table, loaded)
    train([table], 9, count=3)
    train([loaded], 9, count=3)
    loaded.save(tmp_path / "4", delta_of=tmp_path / "3")
    again = make(**settings)
    again.load(tmp_path / "4")
    same(table, again)


def test_a_delta_of_shards_loads_into_another_number(make, tmp_path):
    four = [make() for _ in range(4)]
    train(four, 1)
    save_shards(four, tmp_path / "0")
    train(four, 2, count=1)
    save_shards(four, tmp_path / "1", open_snapshot(tmp_path / "0"))
    whole, loaded = make(), make()
    for each in (1, 2):
        train([whole], each, count=10 if each == 1 else 1)
    loaded.load(tmp_path / "1", name="t")
    same(whole, loaded)


def test_a_delta_holds_only_what_changed(make, tmp_path):
    table = make()
    train([table], 1)
    table.save(tmp_path / "0")
    table.push([5], np.ones((1, DIM), np.float32))
    table.save(tmp_path / "1", delta_of=tmp_path / "0")
    rows = [part["rows"] for part in open_snapshot(tmp_path / "1").tables["table"]]
    assert rows == [1]


def test_a_delta_of_another_tables_snapshot_is_refused(make, tmp_path):
    table, other = make(), make()
    for name, each in (("a", table), ("b", other)):
        each.save(tmp_path / name)
    with pytest.raises(SnapshotError, match="last snapshot"):
        table.save(tmp_path / "c", delta_of=tmp_path / "b")
    table.save(tmp_path / "c", delta_of=tmp_path / "a")


def test_a_delta_whose_base_is_gone_or_replaced_is_refused(make, tmp_path):
    table = make()
    table.save(tmp_path / "0")
    table.save(tmp_path / "1", delta_of=tmp_path / "0")
    (tmp_path / "0").rename(tmp_path / "moved")
    with pytest.raises(SnapshotError, match=r"0/manifest\.json"):
        make().load(tmp_path / "1")
    make().save(tmp_path / "0")
    with pytest.raises(SnapshotError, match="not the base"):
        make().load(tmp_path / "1")


@pytest.mark.parametrize("block", [7, 65_536])
def test_the_files_are_plain_safetensors_of_blocks_ordered_by_bucket(
    make, tmp_path, monkeypatch, block
):
    monkeypatch.setattr("heterps.ps.bucket_files._BLOCK_ROWS", block)
    table = make()
    train([table], 1)
    table.save(tmp_path / "s")
    paths = sorted((tmp_path / "s" / "table").glob("rows-*"))
    files = {path: load_file(path) for path in paths}
    assert sum(len(file["ids"]) for file in files.values()) == len(table)
    for path, file in files.items():
        assert table.pull(file["ids"]).tobytes() == file["values"].tobytes()
        first = int(path.name.split("-")[1])
        found = bucket_of(file["ids"])
        for line in file["bucket_offsets"]:
            for bucket, (start, end) in enumerate(itertools.pairwise(line.tolist()), first):
                assert set(found[start:end].tolist()) <= {bucket}
        assert file["bucket_offsets"][-1, -1] == len(file["ids"])


@pytest.mark.parametrize("block", [1, 7])
def test_small_blocks_load_into_other_shards(make, tmp_path, monkeypatch, block):
    monkeypatch.setattr("heterps.ps.bucket_files._BLOCK_ROWS", block)
    table = make()
    train([table], 2)
    table.save(tmp_path / "s")
    rows = 0
    for shard in range(3):
        part = make()
        part.load(tmp_path / "s", shard, 3)
        rows += len(part)
    assert rows == len(table)


def test_an_empty_table_can_be_saved(make, tmp_path):
    make().save(tmp_path / "s")
    loaded = make()
    loaded.load(tmp_path / "s")
    assert len(loaded) == 0


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"rule": "sgd"}, "state_width"), ({"seed": 3}, "seed"), ({"initial": Normal(0.2)}, "scale")],
)
def test_a_table_with_other_settings_is_refused(make, tmp_path, settings, word):
    make().save(tmp_path / "s")
    with pytest.raises(SnapshotError, match=word):
        make(**settings).load(tmp_path / "s")


def test_a_table_in_use_cannot_be_loaded(make, tmp_path):
    table = make()
    train([table], 1)
    table.save(tmp_path / "s")
    with pytest.raises(InputError, match="new table"):
        table.load(tmp_path / "s")


def test_an_existing_snapshot_is_never_overwritten(make, tmp_path):
    make().save(tmp_path / "s")
    with pytest.raises(SnapshotError, match="exists already"):
        make().save(tmp_path / "s")


def test_parts_that_leave_out_buckets_are_not_published(make, tmp_path):
    table = make()
    with Partial(tmp_path / "s") as partial, pytest.raises(SnapshotError, match="buckets"):
        partial.publish([table.save_part(partial.folder, "t", 0, 2)])
    assert list(tmp_path.iterdir()) == []


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
@pytest.mark.parametrize("pattern", ["manifest.json", "table/rows-*", "table/extra-*"])
def test_a_harmed_snapshot_is_refused_by_the_name_of_the_file(make, tmp_path, harm, pattern):
    table = make(admission=2)
    train([table], 1)
    table.save(tmp_path / "s")
    victim = sorted((tmp_path / "s").glob(pattern))[-1]
    harm(victim)
    loaded = make(admission=2)
    with pytest.raises(SnapshotError, match=victim.name) as caught:
        loaded.load(tmp_path / "s")
    assert caught.value.path == victim
    assert len(loaded) == 0
    assert loaded.step == 0


def test_what_is_no_snapshot_is_refused(make, tmp_path):
    with pytest.raises(SnapshotError, match="cannot be read"):
        make().load(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(SnapshotError, match="format 3"):
        make().load(tmp_path)


def test_a_failed_save_leaves_nothing_and_the_table_usable(make, tmp_path):
    table = make()
    (tmp_path / "file").touch()
    with pytest.raises(SnapshotError):
        table.save(tmp_path / "file" / "s")
    table.save(tmp_path / "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "s"]


SAVER = """
import sys
import numpy as np
from heterps.testing.tables import make_table
kind, folder = sys.argv[1:]
table = make_table(kind, 16, "adagrad")
rows = {rows}
table.push(np.arange(rows), np.ones((rows, 16), np.float32))
table.save(folder + "/0")
print("saved", flush=True)
for i in range(1, 10_000):
    table.save(folder + f"/{{i}}")
    print("saved", i, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.1])
def test_killing_a_process_during_a_save_leaves_whole_snapshots(kind, tmp_path, delay_s):
    code = SAVER.format(rows=20_000 if kind == "reference" else 200_000)
    command = [sys.executable, "-c", code, kind, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    process.stdout.readline()
    while not list(tmp_path.glob("*.partial-*")):
        time.sleep(0.0005)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for path in tmp_path.iterdir():
        if ".partial-" not in path.name:
            table = make_table(kind, 16, "adagrad")
            table.load(path)
            assert len(table) >= 20_000
    assert (tmp_path / "0").exists()


FULL_DISK = """
import resource
import sys
import numpy as np
from heterps.errors import SnapshotError
from heterps.testing.tables import make_table

kind, folder = sys.argv[1:]
table = make_table(kind, 16, "adagrad")
table.push(np.arange(2000), np.ones((2000, 16), np.float32))
table.save(folder + "/0")
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
table.push(np.arange(2000), np.ones((2000, 16), np.float32))
try:
    table.save(folder + "/1")
except SnapshotError as error:
    print(error)
"""


def test_a_full_disk_is_an_error_and_leaves_the_snapshot_before(tmp_path):
    command = [sys.executable, "-c", FULL_DISK, "native", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"{tmp_path}/1.partial-" in result.stdout
    assert "File too large" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    table = make_table("native", 16, "adagrad")
    table.load(tmp_path / "0")
    assert table.step == 1
