import pytest

from heterps.errors import InputError
from heterps.job.resources import ResourceType
from heterps.runtime.emulation import Clock, Demand, Emulation, exchanged_bytes, idle_s


class FakeClock:
    """Time that passes when something is done with it."""

    def __init__(self):
        self.wall = self.cpu = 0.0
        self.slept = []

    def work(self, cpu_s, waiting_s=0.0):
        self.cpu += cpu_s
        self.wall += cpu_s + waiting_s

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.wall += seconds

    def as_clock(self):
        return Clock(lambda: self.wall, lambda: self.cpu, self.sleep)


@pytest.fixture
def time():
    return FakeClock()


def unit(**fields):
    return ResourceType.parse({"name": "small", "price_per_hour": 0.01, "limit": 8} | fields)


def test_a_unit_idles_until_its_slower_self_would_be_done():
    assert idle_s(4.0, cpu_s=0.01, passed_s=0.01) == pytest.approx(0.03)
    assert idle_s(4.0, cpu_s=0.01, passed_s=0.05) == 0  # held up by others for longer


def test_work_takes_slowdown_times_its_cpu_time(time):
    emulation = Emulation.of(unit(slowdown=4.0), time.as_clock())
    with emulation.work():
        time.work(0.01, waiting_s=0.005)
    assert (time.wall, emulation.take_owed_s()) == pytest.approx((0.015, 0.025))
    assert emulation.pay()
    assert time.wall == pytest.approx(0.04)
    assert not emulation.pay()


def test_handing_over_messages_is_not_scaled(time):
    emulation = Emulation.of(unit(slowdown=4.0), time.as_clock())
    with emulation.work(sends=True):
        time.work(0.01)
    assert (time.wall, emulation.work_s) == (0.01, 0.01)


def test_waiting_for_others_is_not_scaled(time):
    emulation = Emulation.of(unit(slowdown=4.0), time.as_clock())
    with emulation.work(waits=True):
        time.work(0.01, waiting_s=1.0)
    assert time.wall == pytest.approx(1.04)


def test_short_pieces_of_work_are_slept_for_together(time):
    emulation = Emulation.of(unit(slowdown=3.0), time.as_clock())
    for _ in range(10):
        with emulation.work():
            time.work(0.0001)
        emulation.pay()
    assert len(time.slept) == 3
    assert time.wall == pytest.approx(0.003, abs=0.0005)


def test_a_sleep_that_took_too_long_counts_for_the_next(time):
    emulation = Emulation(2.0, clock=Clock(lambda: time.wall, lambda: time.cpu, late(time)))
    for _ in range(2):
        with emulation.work():
            time.work(0.01)
        emulation.pay()
    assert time.slept == pytest.approx([0.01, 0.008])


def late(time):
    return lambda seconds: (time.sleep(seconds), time.work(0, waiting_s=0.002))


def test_messages_follow_each_other_over_the_link(time):
    emulation = Emulation.of(unit(link_mbps=8.0, link_ms=5.0), time.as_clock())
    seen = []
    for name in "ab":
        emulation.carry(
            10_000, lambda name=name: seen.append((name, round(time.wall, 6))), leaves=True
        )
    assert emulation.next_due_s(at_most=1.0) == pytest.approx(0.015)
    emulation.run_due()
    assert seen == []
    emulation.settle()
    assert seen == [("a", 0.015), ("b", 0.025)]


def test_what_leaves_is_waited_for_and_what_comes_is_not(time):
    emulation = Emulation(bytes_per_s=1000.0, clock=time.as_clock())
    seen = []
    emulation.carry(1000, lambda: seen.append("sent"), leaves=True)
    emulation.carry(1000, lambda: seen.append("received"))
    emulation.settle()
    assert (seen, time.wall) == (["sent"], 1.0)


def test_the_link_rests_while_there_is_nothing_to_carry(time):
    emulation = Emulation(bytes_per_s=1000.0, clock=time.as_clock())
    time.work(10)
    emulation.carry(1000, lambda: None)
    assert emulation.next_due_s(at_most=60.0) == pytest.approx(1.0)


def test_an_exchange_is_waited_for(time):
    emulation = Emulation(bytes_per_s=1000.0, latency_s=0.5, clock=time.as_clock())
    emulation.exchange(exchanged_bytes(1000, replicas=2))
    assert time.wall == pytest.approx(2.5)
    assert exchanged_bytes(1000, replicas=1) == 0
    assert exchanged_bytes(1000, replicas=1, by_servers=True) == 2000


def test_a_real_unit_is_left_alone(time):
    emulation = Emulation.of(unit(), time.as_clock())
    seen = []
    with emulation.work():
        time.work(0.01)
    emulation.carry(1e9, lambda: seen.append("sent"))
    emulation.exchange(1e9)
    assert (time.slept, seen, emulation.next_due_s(0.5)) == ([], ["sent"], 0.5)


def test_a_machine_is_oversubscribed_from_eight_tenths_of_its_cores_on():
    slow, real = unit(slowdown=4.0), unit()
    assert not Demand.of([(slow, 2)], servers=1, cores=2).oversubscribed
    assert Demand.of([(slow, 3)], servers=1, cores=2).oversubscribed
    assert Demand.of([(real, 1), (slow, 4)], servers=0, cores=2).busy == 2.0
    assert not Demand.of([(unit(device="cuda"), 8)], servers=1, cores=2).oversubscribed


@pytest.mark.parametrize("field", [{"slowdown": 0.5}, {"link_mbps": 0}])
def test_what_cannot_be_emulated_is_refused(field):
    with pytest.raises(InputError, match=next(iter(field))):
        unit(**field)


def test_it_is_known_for_how_long_the_link_was_taken(time):
    emulation = Emulation(bytes_per_s=1000.0, latency_s=0.5, clock=time.as_clock())
    for size in (100, 300):
        emulation.carry(size, lambda: None)
    assert emulation.carried_s == pytest.approx(0.4)


def test_what_a_unit_worked_is_told_without_what_held_it_up(time):
    emulation = Emulation.of(unit(slowdown=4.0), time.as_clock())
    with emulation.work():
        time.work(0.01, waiting_s=5.0)
    with emulation.work(waits=True):
        time.work(0.02, waiting_s=1.0)
    assert (emulation.work_s, emulation.step_s) == pytest.approx((0.04, 0.08))


def test_a_unit_that_idles_lets_its_link_work_and_makes_up_for_what_that_takes(time):
    emulation = Emulation(10.0, bytes_per_s=1000.0, clock=time.as_clock())
    seen = []

    def send():
        seen.append(round(time.wall, 6))
        with emulation.work():
            time.work(0.002)

    def serve(seconds):
        time.sleep(seconds)
        emulation.run_due()

    emulation.serve = serve
    emulation.carry(30, send, leaves=True)
    with emulation.work():
        time.work(0.01)
    emulation.pay()
    assert seen == [0.03]  # in the middle of the work
    assert time.wall == pytest.approx(0.1 + 0.02)
    assert emulation.work_s == pytest.approx(0.12)
