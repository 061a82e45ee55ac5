import pytest

from heterps.testing.slow_switch import Port

PACKET = bytes(10 + 1000)  # behind the header of a network card


def test_packets_leave_one_after_the_other_and_arrive_in_their_time():
    port = Port(0, bytes_per_s=1e4, delay_s=0.5)
    port.take(PACKET, now=0.0)
    port.take(PACKET, now=0.0)
    assert port.next_at() == pytest.approx(0.1 + 0.5)
    assert port.due(now=0.59) == []
    assert len(port.due(now=0.61)) == 1
    assert port.next_at() == pytest.approx(0.2 + 0.5)


def test_what_a_port_cannot_hold_is_lost():
    port = Port(0, bytes_per_s=1e4, delay_s=0.0)
    for _ in range(9):
        port.take(PACKET, now=0.0)
    assert len(port.due(now=10.0)) == 3
