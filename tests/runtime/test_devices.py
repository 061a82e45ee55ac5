import pytest

from heterps.runtime.devices import in_turn, own_device, turns


def test_workers_of_a_host_that_ask_for_the_same_device_take_turns():
    wanted = [("a", "xpu"), ("a", "cuda"), ("b", "xpu"), ("a", "xpu"), ("a", "xpu")]
    assert turns(wanted) == [0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("device", "turn", "there", "expected"),
    [
        ("xpu", 0, 2, "xpu:0"),
        ("xpu", 1, 2, "xpu:1"),
        ("xpu", 2, 2, "xpu:0"),
        ("xpu:0", 1, 2, "xpu:0"),
        ("cuda", 1, 1, "cuda"),
        ("cuda", 1, 0, "cuda"),
    ],
)
def test_each_takes_the_next_unless_it_was_named_or_is_the_only_one(device, turn, there, expected):
    assert in_turn(device, turn, there) == expected


def test_the_cpu_is_there_once():
    assert own_device("cpu", 3) == "cpu"
