"""The Python surface of a sparse table: what it takes, gives and refuses."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from heterps.errors import InputError, NotCommittedError, UnknownNameError
from heterps.ps.initial import Constant
from heterps.ps.table import SparseTable
from heterps.testing.tables import STORES, make_table

ONES = np.ones((2, 2), np.float32)


@pytest.fixture(params=STORES)
def make(request):
    return lambda *args, **settings: make_table(request.param, *args, **settings)


@pytest.fixture
def table(make):
    """Rows start at 1 and lose 0.5 per unit of gradient."""
    return make(2, "sgd", lr=0.5, initial=Constant(1.0))


class TestPushAndPull:
    def test_a_pull_leaves_no_trace(self, table):
        assert table.pull([1, 2, 1]).tolist() == [[1, 1]] * 3
        assert len(table) == 0
        assert table.step == 0

    def test_gradients_of_one_id_are_summed_before_the_rule(self, table):
        table.push([7, 8, 7], np.array([[1, 0], [1, 1], [2, 0]], np.float32))
        assert table.pull([7, 8, 9]).tolist() == [[-0.5, 1], [0.5, 0.5], [1, 1]]
        assert len(table) == 2
        assert table.step == 1

    def test_an_empty_push_is_a_step(self, table):
        table.push([], np.empty((0, 2), np.float32))
        assert table.step == 1

    def test_the_learning_rate_can_be_set(self, table):
        table.lr = 1.0
        table.push([1, 2], ONES)
        table.push([1, 2], ONES, lr=0.25)
        assert table.pull([1]).tolist() == [[-0.25, -0.25]]
        assert table.lr == 1.0

    def test_rows_are_written_into_the_callers_memory(self, table):
        out = np.zeros((2, 2), np.float32)
        assert table.pull([1, 2], out=out) is out
        assert out.tolist() == [[1, 1]] * 2

    def test_torch_tensors_are_taken_without_a_copy(self, table):
        ids, out = torch.tensor([3, 4]), torch.zeros(2, 2)
        table.push(ids, torch.ones(2, 2, requires_grad=True))
        table.pull(ids, out=out)
        assert out.tolist() == [[0.5, 0.5]] * 2

    def test_strided_gradients_are_read_in_their_order(self, table):
        table.push([1, 2], np.array([[1, 2], [3, 4]], np.float32).T)
        assert table.pull([1, 2]).tolist() == [[0.5, -0.5], [0, -1]]


class TestBatches:
    def test_a_batch_commits_when_its_last_part_is_in(self, table):
        table.announce(0, 2)
        assert table.accumulate(0, (0, 0), [1, 2], ONES)
        assert table.committed == -1
        assert table.accumulate(0, (1, 0), [1, 2], ONES)
        assert table.committed == 0
        assert table.pull([1], batch=1).tolist() == [[0, 0]]

    def test_a_repeated_part_is_ignored(self, table):
        table.announce(0, 2)
        table.accumulate(0, (0, 0), [1, 2], ONES)
        assert not table.accumulate(0, (0, 0), [1, 2], ONES)
        assert table.committed == -1

    def test_batches_commit_in_their_order(self, table):
        table.accumulate(1, (0, 0), [1, 2], ONES)
        table.announce(1, 1)
        assert table.committed == -1
        table.announce(0, 0)
        assert table.committed == 1

    def test_a_pull_waits_for_the_batch_before(self):
        """Of the native store alone: the oracle is for one thread."""
        table = SparseTable(2, "sgd", lr=0.5, initial=Constant(1.0))
        table.announce(0, 1)
        timer = threading.Timer(0.1, lambda: table.accumulate(0, (0, 0), [1, 2], ONES))
        timer.start()
        assert table.pull([1], batch=1, timeout_s=30).tolist() == [[0.5, 0.5]]
        timer.join()

    def test_a_pull_gives_up_after_its_time_out(self, table):
        with pytest.raises(NotCommittedError, match="batch 1") as caught:
            table.pull([1], batch=1, timeout_s=0.05)
        assert caught.value.committed == -1

    def test_staleness_lets_pulls_run_ahead(self, make):
        table = make(2, "sgd", staleness=2)
        table.pull([1], batch=2, timeout_s=0.05)
        with pytest.raises(NotCommittedError):
            table.pull([1], batch=3, timeout_s=0.05)

    def test_another_number_of_parts_is_refused(self, table):
        table.announce(0, 2)
        table.announce(0, 2)
        with pytest.raises(InputError, match="batch"):
            table.announce(0, 3)

    def test_more_parts_than_announced_are_refused(self, table):
        table.announce(1, 1)
        table.accumulate(1, (0, 0), [1, 2], ONES)
        with pytest.raises(InputError, match="batch"):
            table.accumulate(1, (1, 0), [1, 2], ONES)


class TestAdmissionAndEviction:
    def test_an_id_gets_a_row_at_its_nth_sighting(self, make):
        table = make(2, "sgd", lr=0.5, initial=Constant(1.0), admission=3)
        for expected in (0, 0, 0.5):
            table.push([4, 4], ONES / 2)
            assert table.pull([4]).tolist() == [[expected, expected]]
        assert len(table) == 1

    def test_a_row_that_is_not_pushed_for_long_is_gone(self, make):
        table = make(2, "sgd", lr=0.5, initial=Constant(1.0), evict_after=2)
        table.push([1, 2], ONES)
        for _ in range(2):
            table.push([2, 3], ONES)
        assert table.pull([1]).tolist() == [[0.5, 0.5]]
        table.push([2, 3], ONES)
        assert table.pull([1]).tolist() == [[1, 1]]
        assert len(table) == 2

    def test_past_max_rows_the_least_useful_go(self, make):
        table = make(1, "sgd", lr=0.5, max_rows=4)
        table.push(np.arange(4), np.ones((4, 1), np.float32))
        table.push(np.arange(3), np.ones((3, 1), np.float32))
        table.push([9], np.ones((1, 1), np.float32))
        assert len(table) == 3
        assert table.pull([3]).tolist() == make(1, "sgd").pull([3]).tolist()


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (lambda t: t.pull(np.array([1], np.int32)), "ids"),
        (lambda t: t.pull([1.5]), "ids"),
        (lambda t: t.pull([2**63]), "ids"),
        (lambda t: t.pull(np.array([[1]])), "ids"),
        (lambda t: t.pull("ids"), "ids"),
        (lambda t: t.pull([1], out=np.zeros((2, 2), np.float32)), "out"),
        (lambda t: t.pull([1, 2], out=np.zeros((2, 2), np.float32).T), "out"),
        (lambda t: t.pull([1], batch=-1), "batch"),
        (lambda t: t.push([1], np.ones((1, 3), np.float32)), "grads"),
        (lambda t: t.push([1], np.ones((1, 2))), "grads"),
        (lambda t: t.push([1], torch.ones(1, 2, dtype=torch.bfloat16)), "grads"),
        (lambda t: t.push([1, 2], ONES, lr=float("nan")), "lr"),
        (lambda t: setattr(t, "lr", -1.0), "lr"),
        (lambda t: t.accumulate(-1, (0, 0), [1, 2], ONES), "batch"),
        (lambda t: t.accumulate(0, (0, -1), [1, 2], ONES), "part"),
        (lambda t: t.accumulate(0, 3, [1, 2], ONES), "part"),
        (lambda t: t.announce(0, -1), "parts"),
        (lambda t: t.announce(2**63, 1), "batch"),
    ],
)
def test_a_bad_argument_is_named(table, call, path):
    with pytest.raises(InputError) as caught:
        call(table)
    assert caught.value.path == path
    assert table.step == 0


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": 2.0}, "dim"),
        ({"dim": 2, "rule": "sdg"}, "rule"),
        ({"dim": 2, "lr": float("inf")}, "lr"),
        ({"dim": 2, "seed": -1}, "seed"),
        ({"dim": 2, "initial": "zeros"}, "initial"),
        ({"dim": 2, "memory_bytes": 100}, "path"),
        ({"dim": 2, "memory_bytes": 0, "path": "x"}, "memory_bytes"),
        ({"dim": 2, "admission": -1}, "admission"),
        ({"dim": 2, "threads": True}, "threads"),
        ({"dim": 2**40}, "dim"),
        ({"dim": 2, "seed": 2**64}, "seed"),
        ({"dim": 2, "evict_after": 2**32}, "evict_after"),
    ],
)
def test_a_bad_setting_is_named(make, settings, path):
    with pytest.raises(InputError) as caught:
        make(**settings)
    assert caught.value.path == path
    assert path != "rule" or isinstance(caught.value, UnknownNameError)


def test_a_closed_table_says_so(make):
    with make(2) as table:
        table.pull([1])
    with pytest.raises(InputError, match="closed"):
        table.pull([1])


def test_the_parameter_server_needs_no_torch():
    code = "import sys, heterps.ps; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
