import threading
import time

import pytest
import torch

from heterps.data.prefetch import Prefetch
from heterps.errors import InputError

pytestmark = pytest.mark.slow  # imports torch


class Counting:
    """Every second number, from 0 on; notes what was read."""

    def __init__(self, fails_at: int = -1, delay_s: float = 0.0) -> None:
        self.read: list[int] = []
        self.fails_at = fails_at
        self.delay_s = delay_s

    def numbers(self, start: int = 0):
        while True:
            yield start
            start += 2

    def micro_batch(self, j: int):
        self.read.append(j)
        time.sleep(self.delay_s)
        if j == self.fails_at:
            raise InputError("d/part-7.parquet", "row group 3 cannot be read")
        return {"x": torch.full((10,), float(j))}


def until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads() -> int:
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def test_micro_batches_come_in_order():
    with Prefetch(Counting(), micro_batches=3) as prefetch:
        for j in range(0, 100, 2):
            assert prefetch.micro_batch(j)["x"].tolist() == [j] * 10
    assert threads() == 0


def test_no_more_than_the_bound_waits():
    reader = Counting()
    with Prefetch(reader, micro_batches=3) as prefetch:
        prefetch.is_read(0)  # begins, and takes nothing
        until(lambda: len(reader.read) == 3)
        time.sleep(0.05)
        assert reader.read == [0, 2, 4]
        prefetch.micro_batch(0)
        prefetch.micro_batch(2)  # less than half is left
        until(lambda: len(reader.read) == 5)
        time.sleep(0.05)
        assert reader.read == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("max_bytes", "ahead"), [(1, 1), (81, 3)])
def test_bytes_are_bounded_too_but_one_always_fits(max_bytes: int, ahead: int):
    reader = Counting()  # 40 bytes each
    with Prefetch(reader, micro_batches=100, max_bytes=max_bytes) as prefetch:
        prefetch.is_read(0)
        until(lambda: len(reader.read) == ahead)
        time.sleep(0.05)
        assert len(reader.read) == ahead


def test_another_number_starts_anew_from_there():
    reader = Counting()
    with Prefetch(reader) as prefetch:
        for j in (0, 2, 50, 52, 4, 4):
            assert prefetch.micro_batch(j)["x"][0] == j
        assert threads() == 1


def test_an_error_reaches_whoever_asks_for_that_micro_batch():
    reader = Counting(fails_at=6)
    with Prefetch(reader) as prefetch:
        for j in (0, 2, 4):
            prefetch.micro_batch(j)
        for _ in range(2):
            with pytest.raises(InputError, match=r"d/part-7\.parquet: row group 3 cannot"):
                prefetch.micro_batch(6)
        assert reader.read.count(6) == 2
        reader.fails_at = -1
        assert prefetch.micro_batch(6)["x"][0] == 6
    assert threads() == 0


def test_nothing_is_read_past_the_end():
    reader = Counting()
    with Prefetch(reader, stop=7) as prefetch:
        for j in (0, 2, 4, 6):
            prefetch.micro_batch(j)
        until(lambda: threads() == 0)
        assert reader.read == [0, 2, 4, 6]
        with pytest.raises(AssertionError, match="past the end"):
            prefetch.micro_batch(8)


def test_closing_ends_a_thread_that_waits_or_reads():
    for delay_s in (0.0, 0.05):
        prefetch = Prefetch(Counting(delay_s=delay_s), micro_batches=1)
        prefetch.micro_batch(0)
        prefetch.close()
        prefetch.close()
        assert threads() == 0
    assert prefetch.micro_batch(4)["x"][0] == 4  # and it can start again
    prefetch.close()
