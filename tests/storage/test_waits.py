import re
from dataclasses import replace

import pytest

from heterps.storage.patience import Call, Patience
from heterps.storage.waits import wait_told, waits_told


def test_failures_are_told_of_after_three_seconds():
    call = Call("hdfs://h:8020/a/b", Patience(), 10.0, "no node")
    assert wait_told(call, 12.9) is None
    said = "waiting for hdfs://h:8020 (no node): trying for 117 s more"
    assert wait_told(call, 13.0) == said


def test_an_answer_that_does_not_come_is_told_of_later_and_of_a_large_file_later_still():
    call = Call("s3://b/a", Patience(), 0.0)
    assert wait_told(call, 9.9) is None
    assert wait_told(call, 10.0) == "waiting for s3://b (no answer in 10 s): trying for 110 s more"
    assert wait_told(Call("s3://b/a", Patience().for_bytes(30 << 20), 0.0), 19.0) is None


def test_nothing_is_told_of_what_is_tried_once_or_nearly_given_up():
    call = Call("s3://b/a", replace(Patience(), total_s=0.0), 0.0, "down")
    assert wait_told(call, 20.0) is None
    assert wait_told(Call("s3://b/a", Patience(), 0.0, "down"), 119.5) is None


def test_each_host_is_told_of_once_while_calls_to_it_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heterps.storage.patience._calls", set())  # threads of other tests may wait
    monkeypatch.setattr("heterps.storage.waits._LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("heterps.storage.waits._AFTER_FAILURES_S", 0.05)
    lines: list[str] = []
    patience, tries = Patience(first_s=0.01, most_s=0.01), iter(range(30))

    def until_told() -> None:
        if not lines:
            raise OSError("down")

    def for_a_while() -> None:
        if next(tries, None) is not None:
            raise OSError("down")

    with waits_told(lines.append):
        patience.persist(until_told, "hdfs://h/a")
        patience.persist(for_a_while, "hdfs://h/b")
    assert len(lines) == 1
    assert re.match(r"waiting for hdfs://h \(down\): trying for 1[12]\d s more$", lines[0])
