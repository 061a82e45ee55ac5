"""Telling a person that servers do not answer: once for each host, while patience lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from heterps.storage.patience import Call, calls

_LOOK_EVERY_S = 0.5
_AFTER_FAILURES_S = 3.0
_SHARE_OF_ATTEMPT = 1 / 3  # that may pass without any answer


def wait_told(call: Call, now: float) -> str | None:
    """What to say of a call; None of one that is quick, or that is nearly given up."""
    waited = now - call.began
    left, attempt_s = call.patience.total_s - waited, call.patience.attempt_s
    if left < 1.0:
        return None
    if call.problem is None and (attempt_s is None or waited < _SHARE_OF_ATTEMPT * attempt_s):
        return None
    if waited < _AFTER_FAILURES_S:
        return None
    problem = call.problem or f"no answer in {waited:.0f} s"
    return f"waiting for {host_of(call.url)} ({problem}): trying for {left:.0f} s more"


def host_of(url: str) -> str:
    """Such as ``hdfs://namenode:8020``; a path is its own."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else url


@contextmanager
def waits_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile ``tell`` hears of calls of this process that wait, in a thread of its own."""
    over, told = threading.Event(), set[str]()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY_S):
            for call in calls():
                line = wait_told(call, time.monotonic())
                if line is not None and host_of(call.url) not in told:
                    told.add(host_of(call.url))
                    tell(line)

    thread = threading.Thread(target=watch, name="waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
