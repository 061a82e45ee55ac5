"""When a process counts as frozen: with handles that say what they are told, and a clock to set."""

import pytest

from heterps.errors import ProcessError
from heterps.runtime.engines.base import Handle, ProcessSpec
from heterps.runtime.watch import Watch


class Told(Handle):
    def __init__(self, name):
        super().__init__(ProcessSpec(name, "module"))
        self.code, self.held, self.waits = None, False, False

    def read(self, name):
        return None

    def poll(self):
        return self.code

    def stop(self, grace_s=0.0):
        return 0

    def stopped(self):
        return self.held

    def wants_to_run(self):
        return self.waits

    def last_words(self, lines=3):
        return "no reason given"


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def watch(now):
    watch = Watch(lambda: now[0])
    watch.workers = [Told("stage-0-replica-0"), Told("stage-0-replica-1")]
    for worker in (0, 1):
        watch.heard(worker, 0)
    watch.begin_work()
    return watch


def pass_time(watch, now, seconds, beats=(0,)):
    for _ in range(int(seconds * 2)):
        now[0] += 0.5
        for worker in beats:
            watch.heard(worker, 0)
        watch.look()


def test_a_worker_without_beats_is_frozen_after_four_seconds(watch, now):
    pass_time(watch, now, 4)
    with pytest.raises(ProcessError, match=r"replica-1.*no sign of life for 4.5 s"):
        pass_time(watch, now, 0.5)


def test_one_that_waits_for_a_processor_is_given_more_time(watch, now):
    watch.workers[1].waits = True
    pass_time(watch, now, 20)
    with pytest.raises(ProcessError, match=r"no sign of life for 20.5 s"):
        pass_time(watch, now, 0.5)


def test_one_that_waited_and_then_sleeps_without_a_word_is_frozen(watch, now):
    watch.workers[1].waits = True
    pass_time(watch, now, 6)
    watch.workers[1].waits = False
    with pytest.raises(ProcessError, match=r"no sign of life for 6.5 s"):
        pass_time(watch, now, 0.5)


def test_one_that_is_stopped_is_frozen_whatever_it_waits_for(watch, now):
    watch.workers[1].held = watch.workers[1].waits = True
    with pytest.raises(ProcessError, match=r"replica-1.*no sign of life"):
        pass_time(watch, now, 5)


def test_time_in_which_the_coordinator_itself_stood_still_counts_for_nobody(watch, now):
    pass_time(watch, now, 1)
    now[0] += 9.0
    watch.look()
    pass_time(watch, now, 1)
    with pytest.raises(ProcessError, match="no sign of life"):
        pass_time(watch, now, 3)


def test_an_exit_is_seen_at_the_next_look(watch):
    watch.workers[0].code = -9
    with pytest.raises(ProcessError, match=r"replica-0.*SIGKILL"):
        watch.look()


def wait(watch, now, seconds):
    for _ in range(int(seconds * 2)):
        now[0] += 0.5
        watch.expect_progress(10.0)


def test_a_process_at_work_is_slow_and_not_stuck_until_it_is_idle(watch, now):
    watch.servers = [Told("server-0")]
    watch.servers[0].waits = True
    wait(watch, now, 40)
    watch.servers[0].waits = False
    wait(watch, now, 1)
    with pytest.raises(ProcessError, match="makes no progress, nor does any other, for 42 s"):
        wait(watch, now, 0.5)


def test_one_that_is_at_work_for_minutes_turns_in_circles(watch, now):
    watch.workers[0].waits = True
    wait(watch, now, 300)
    with pytest.raises(ProcessError, match="for 300 s"):
        wait(watch, now, 0.5)
