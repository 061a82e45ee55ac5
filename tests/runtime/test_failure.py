"""The policy alone: what happened goes in, what to do comes out."""

import pytest

from heterps.runtime.failure import Failure, decide, is_stuck, patience_s

WORKER = "stage-0-replica-1"


def ended(step, process=WORKER):
    return Failure(process, "ended", step)


@pytest.mark.parametrize("kind", ["ended", "frozen", "stuck", "lost"])
def test_what_is_seen_from_outside_is_tried_again(kind):
    assert decide([Failure(WORKER, kind, 3)], retries=3).again


def test_what_a_process_says_of_its_own_work_is_not_tried_again():
    decision = decide([ended(1), Failure(WORKER, "wrong", 9)], retries=3)
    assert not decision.again
    assert decision.why == f"{WORKER} would fail in the same way again"


def test_a_run_that_gets_no_further_is_given_up():
    history = [ended(5, "server-0"), ended(5), ended(4, "server-1"), ended(4)]
    assert decide(history[:3], retries=3).again
    decision = decide(history, retries=3)
    assert not decision.again
    assert decision.why == "4 failures in a row without progress past step 5"


def test_a_run_that_gets_further_each_time_goes_on_for_ever():
    assert decide([ended(step) for step in range(100)], retries=1).again


def test_failures_before_the_last_progress_do_not_count():
    assert decide([ended(5), ended(5), ended(5), ended(6)], retries=2).again


def test_steps_done_anew_are_no_progress():
    """From the last snapshot a run may come as far as before, and fail there again."""
    assert not decide([ended(10), ended(8), ended(9), ended(10)], retries=3).again


def test_without_retries_the_first_failure_ends_the_run():
    assert not decide([ended(5)], retries=0).again


def test_no_progress_is_borne_for_ten_batches_and_ten_seconds_at_least():
    assert patience_s(None) == 10.0
    assert patience_s(0.2) == 10.0
    assert patience_s(3.0) == 30.0


def test_no_progress_is_stuck_once_all_have_been_idle_and_much_later_at_work():
    assert not is_stuck(10.5, idle_s=10.5, within_s=10)
    assert is_stuck(11.5, idle_s=11.5, within_s=10)
    assert not is_stuck(299, idle_s=0.9, within_s=10)
    assert is_stuck(301, idle_s=0.0, within_s=10)


def test_a_later_snapshot_is_progress():
    """Else a run that is disturbed often, and still gets on, would be given up."""
    history = [Failure(WORKER, "ended", 30 - n, saved=10 + n) for n in range(9)]
    assert decide(history, retries=2).again


def test_a_worker_that_fails_again_and_again_loses_its_unit():
    history = [ended(5)] * 3
    assert decide(history[:2], retries=3, spare=True).action == "restart"
    decision = decide(history, retries=3, spare=True)
    assert decision.action == "fewer"
    assert decision.why == f"{WORKER} failed 3 times in a row: its unit counts as lost"


def test_a_unit_is_not_given_up_where_there_is_no_other():
    assert decide([ended(5)] * 3, retries=3, spare=False).action == "restart"


def test_failures_of_different_processes_are_nobodys_fault():
    history = [ended(5), ended(5, "stage-1-replica-0"), ended(5)]
    assert decide(history, retries=3, spare=True).action == "restart"
