import pytest

from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.read_ahead import ReadAhead

SIZES = [40, 40, 25, 40, 13, 30, 30, 22]


class Announcements:
    def __init__(self, each_bytes: int = 10) -> None:
        self.each_bytes = each_bytes
        self.said: list[int] = []
        self.forgotten: list[int] = []

    def announce(self, row_group: int) -> int:
        self.said.append(row_group)
        return self.each_bytes

    def forget(self, row_group: int) -> None:
        self.forgotten.append(row_group)


@pytest.fixture
def lanes() -> Lanes:
    return Lanes(LanePlan(sum(SIZES), 4, 7), SIZES, seed=3)


def walk(ahead: ReadAhead, lanes: Lanes, start: int, stop: int) -> list[tuple[int, int]]:
    """The row groups in the order of need, each once."""
    needed = []
    for j in range(start, stop):
        ahead.move_to(j)
        epoch = lanes.plan.epoch_of(j)
        for group, _, _ in lanes.pieces_of(j):
            if (epoch, group) not in needed:
                needed.append((epoch, group))
                ahead.take((epoch, group))
    return needed


def test_row_groups_are_announced_in_the_order_of_need_and_a_few_at_a_time(lanes: Lanes):
    data = Announcements()
    ahead = ReadAhead(data, lanes, range(4), most_groups=3)
    needed = walk(ahead, lanes, 0, lanes.plan.per_epoch)
    groups = [group for _, group in needed]
    assert data.said[: len(groups) - 1] == groups[1:]
    assert len(data.said) == len(groups) - 1 + 3
    assert data.forgotten == []


def test_bytes_bound_what_is_announced(lanes: Lanes):
    data = Announcements(each_bytes=100)
    ahead = ReadAhead(data, lanes, range(4), most_bytes=50)
    ahead.move_to(0)
    ahead.take((0, lanes.pieces_of(0)[0].row_group))
    assert len(data.said) == 1


def test_a_jump_forgets_what_was_announced(lanes: Lanes):
    data = Announcements()
    ahead = ReadAhead(data, lanes, range(4), most_groups=2)
    walk(ahead, lanes, 0, 1)
    assert len(data.said) == 2
    ahead.move_to(lanes.plan.per_epoch * 3)
    assert sorted(data.forgotten) == sorted(data.said)


def test_local_files_are_announced_once_and_never_again(lanes: Lanes):
    data = Announcements(each_bytes=0)
    walk(ReadAhead(data, lanes, range(4)), lanes, 0, 2 * lanes.plan.per_epoch)
    assert len(data.said) == 1


def test_nothing_past_the_end_is_announced(lanes: Lanes):
    data = Announcements()
    stop = lanes.plan.per_epoch
    needed = walk(ReadAhead(data, lanes, range(4), stop=stop), lanes, 0, stop)
    assert data.said == [group for _, group in needed[1:]]
