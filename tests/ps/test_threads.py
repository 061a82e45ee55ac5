"""The store in C++ with its own threads, and called by several at once."""

import threading

import numpy as np
import pytest

from heterps.ps import RULES, Constant, SparseTable
from heterps.testing.tables import assert_same_rows, make_store, pull

IDS = np.arange(20_000)
ONES = np.ones((len(IDS), 2), np.float32)


def trained(threads: int, rule: str, **settings):
    store = make_store("native", 17, RULES[rule](), threads=threads, **settings)
    rng = np.random.default_rng(0)
    for batch in range(6):
        ids = rng.zipf(1.2, 40_000) % 30_000
        grads = rng.normal(size=(len(ids), 17)).astype(np.float32)
        store.push(ids, grads, None)
        store.announce(batch, 2, None)
        for part in (1, 0):
            store.accumulate(batch, part, 0, ids[part::2].copy(), grads[part::2].copy())
    return store


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("limits", [{}, {"admission": 3, "evict_after": 4, "max_rows": 5000}])
def test_the_number_of_threads_changes_no_bit(rule, limits):
    stores = [trained(threads, rule, **limits) for threads in (1, 2, 4)]
    for store in stores[1:]:
        assert_same_rows(stores[0], store)
        assert pull(store, IDS).tobytes() == pull(stores[0], IDS).tobytes()


@pytest.fixture
def counting():
    """A table whose rows all hold the number of pushes so far, while a thread goes on pushing."""
    table = SparseTable(2, "sgd", lr=1.0, initial=Constant(0.0), threads=2)
    table.push(IDS, -ONES)
    over = threading.Event()

    def push():
        while not over.is_set():
            table.push(IDS, -ONES)

    thread = threading.Thread(target=push)
    thread.start()
    yield table
    over.set()
    thread.join()


def test_a_pull_sees_a_push_as_a_whole_or_not_at_all(counting):
    for _ in range(30):
        rows = counting.pull(IDS)
        assert (rows == rows[0, 0]).all()


def test_a_snapshot_beside_pushes_is_of_one_moment(counting, tmp_path):
    for round in range(5):
        counting.save(tmp_path / f"{round}")
        loaded = SparseTable(2, "sgd", initial=Constant(0.0))
        loaded.load(tmp_path / f"{round}")
        assert (loaded.pull(IDS) == loaded.step).all()


def test_deltas_beside_pushes_are_of_one_moment(counting, tmp_path):
    counting.save(tmp_path / "0")
    for round in range(1, 5):
        counting.save(tmp_path / f"{round}", delta_of=tmp_path / f"{round - 1}")
    loaded = SparseTable(2, "sgd", initial=Constant(0.0))
    loaded.load(tmp_path / "4")
    assert (loaded.pull(IDS) == loaded.step).all()


def test_parts_from_many_threads_commit_in_order_to_the_same_bits():
    def run(order):
        table = SparseTable(3, "adam", threads=1)

        def send(worker):
            for batch in range(5):
                rng = np.random.default_rng((batch, worker))
                grads = rng.normal(size=(50, 3)).astype(np.float32)
                table.announce(batch, 4)
                table.accumulate(batch, (worker, 0), rng.integers(0, 40, 50), grads)
                table.pull([1], batch=batch + 1, timeout_s=60)

        threads = [threading.Thread(target=send, args=(worker,)) for worker in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert table.committed == 4
        return table.pull(np.arange(40)).tobytes()

    assert run([0, 1, 2, 3]) == run([3, 1, 0, 2])
