import os
import signal
import threading
import time

import numpy as np
import pytest

from heterps.errors import HeterPSError, InputError, SnapshotError
from heterps.ps.initial import Uniform
from heterps.ps.processes import registrations
from heterps.ps.protocol import DenseSpec, TableSpec
from heterps.ps.rules import Adam
from heterps.ps.table import SparseTable
from heterps.testing.servers import serving

DIM = 4
SPEC = TableSpec(dim=DIM, rule="adam", lr=0.1, seed=1)
IDS = np.arange(500)


def grads_of(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, DIM)).astype(np.float32)


def in_process() -> SparseTable:
    return SparseTable(DIM, Adam(lr=0.1), seed=1, initial=Uniform(SPEC.scale))


def train(table, first: int, steps: int) -> None:
    for step in range(first, first + steps):
        ids = np.random.default_rng(step).integers(0, len(IDS), 200)
        table.push(ids, grads_of(step, 200))


@pytest.mark.slow
def test_a_snapshot_of_four_servers_goes_on_on_one_and_on_seven(tmp_path):
    local = in_process()
    train(local, 0, 6)
    with serving(tmp_path, 4) as client:
        table = client.create_table("t", SPEC)
        train(table, 0, 3)
        client.save(tmp_path / "snapshot")
    for count in (1, 7):
        with serving(tmp_path, count) as client:
            table = client.create_table("t", SPEC)
            client.load(tmp_path / "snapshot")
            assert table.step == 3
            train(table, 3, 3)
            assert table.pull(IDS).tobytes() == local.pull(IDS).tobytes()


@pytest.mark.slow
def test_tables_tensors_and_deltas_are_saved_and_replace_what_is_there(tmp_path):
    start = np.ones((2, 3), np.float32)
    with serving(tmp_path, 3) as client:
        table = client.create_table("t", SPEC)
        tensor = client.create_tensor("w", start, DenseSpec(rule="adam", lr=0.1))
        train(table, 0, 2)
        client.save(tmp_path / "full")
        tensor.push(start)
        train(table, 2, 2)
        client.save(tmp_path / "delta", delta_of=tmp_path / "full")
        rows, weights = table.pull(IDS), tensor.pull()
        train(table, 4, 2)
        tensor.push(start)
        client.load(tmp_path / "delta")
        np.testing.assert_array_equal(table.pull(IDS), rows)
        np.testing.assert_array_equal(tensor.pull(), weights)
        assert table.step == 4


@pytest.mark.slow
def test_one_table_is_saved_and_loaded_under_another_name(tmp_path):
    with serving(tmp_path, 2) as client:
        first, second = client.create_table("a", SPEC), client.create_table("b", SPEC)
        train(first, 0, 2)
        first.save(tmp_path / "a")
        second.load(tmp_path / "a", alias="a")
        np.testing.assert_array_equal(second.pull(IDS), first.pull(IDS))
        assert (second.step, first.step) == (2, 2)


@pytest.mark.slow
def test_a_table_in_process_and_servers_read_each_others_snapshots(tmp_path):
    local = in_process()
    train(local, 0, 2)
    local.save(tmp_path / "local")
    with serving(tmp_path, 2) as client:
        table = client.create_table("t", SPEC)
        table.load(tmp_path / "local", alias="table")
        table.save(tmp_path / "remote")
        np.testing.assert_array_equal(table.pull(IDS), local.pull(IDS))
    again = in_process()
    again.load(tmp_path / "remote", name="t")
    np.testing.assert_array_equal(again.pull(IDS), local.pull(IDS))


@pytest.mark.slow
def test_what_cannot_be_saved_or_loaded_is_named_and_nothing_changes(tmp_path):
    with serving(tmp_path, 2) as client:
        table = client.create_table("t", SPEC)
        train(table, 0, 1)
        rows = table.pull(IDS)
        client.save(tmp_path / "one")
        with pytest.raises(SnapshotError, match="exists already"):
            client.save(tmp_path / "one")
        with pytest.raises(SnapshotError, match="cannot be read"):
            client.load(tmp_path / "none")
        client.create_table("u", SPEC)
        with pytest.raises(SnapshotError, match="holds no table 'u'"):
            client.load(tmp_path / "one")
        np.testing.assert_array_equal(table.pull(IDS), rows)
        client.save(tmp_path / "two")
        with pytest.raises(SnapshotError, match="a delta follows the last snapshot"):
            client.save(tmp_path / "three", delta_of=tmp_path / "one")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["key", "one", "servers", "two"]


def test_unknown_names_are_refused(tmp_path):
    with serving(tmp_path, 1) as client, pytest.raises(InputError, match="unknown"):
        client.save(tmp_path / "one", ["nothing"])


@pytest.mark.slow
def test_pulls_go_on_during_a_save(tmp_path):
    rows = 400_000
    with serving(tmp_path, 1) as client:
        table = client.create_table("t", SPEC)
        table.push(np.arange(rows), np.ones((rows, DIM), np.float32))
        saving = threading.Thread(target=client.save, args=(tmp_path / "s",))
        saving.start()
        during = 0
        while saving.is_alive():
            table.pull([1, 2, 3])
            during += saving.is_alive()
        saving.join()
    assert during > 5


@pytest.mark.slow
def test_a_server_killed_during_a_save_leaves_the_previous_snapshot(tmp_path):
    rows = 400_000
    with serving(tmp_path, 2, timeout_s=60) as client:
        table = client.create_table("t", SPEC)
        table.push(np.arange(rows), np.ones((rows, DIM), np.float32))
        expected = table.pull(IDS)
        client.save(tmp_path / "first")
        table.push(np.arange(rows), np.ones((rows, DIM), np.float32))
        problems: list[HeterPSError] = []
        saving = threading.Thread(target=_save, args=(client, tmp_path / "second", problems))
        saving.start()
        while not any(tmp_path.glob("second.partial-*/t/*")):
            time.sleep(0.001)
        os.kill(registrations(tmp_path)[1].pid, signal.SIGKILL)
        saving.join(60)
        assert not saving.is_alive()
        assert "shard 1" in str(problems[0])
    assert not list(tmp_path.glob("second*"))
    with serving(tmp_path, 1) as client:
        table = client.create_table("t", SPEC)
        client.load(tmp_path / "first")
        np.testing.assert_array_equal(table.pull(IDS), expected)
        assert len(table) == rows


def _save(client, path, problems) -> None:
    try:
        client.save(path)
    except HeterPSError as error:
        problems.append(error)


def test_what_was_captured_is_saved_whatever_changes_meanwhile(tmp_path):
    start = np.ones((2, 3), np.float32)
    with serving(tmp_path, 2) as client:
        table = client.create_table("t", SPEC)
        tensor = client.create_tensor("w", start, DenseSpec(rule="adam", lr=0.1))
        train(table, 0, 2)
        rows, weights = table.pull(IDS), tensor.pull()
        client.capture()
        train(table, 2, 3)
        tensor.push(start)
        client.save(tmp_path / "snapshot")
        client.save(tmp_path / "later")
        client.load(tmp_path / "snapshot")
        np.testing.assert_array_equal(table.pull(IDS), rows)
        np.testing.assert_array_equal(tensor.pull(), weights)
        assert table.step == 2
        client.load(tmp_path / "later")
        assert table.step == 5


def test_a_capture_that_nobody_saves_is_given_up_by_the_next(tmp_path):
    with serving(tmp_path, 1) as client:
        table = client.create_table("t", SPEC)
        train(table, 0, 1)
        client.capture()
        train(table, 1, 1)
        client.capture()
        client.save(tmp_path / "snapshot")
        client.load(tmp_path / "snapshot")
        assert table.step == 2
