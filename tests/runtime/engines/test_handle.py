"""What the coordinator makes of an actor's answers, without Ray."""

import threading
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from heterps.errors import ProcessError
from heterps.runtime.engines.base import ProcessSpec
from heterps.runtime.engines.ray.handle import RayHandle
from heterps.runtime.engines.ray.keeper import FolderError, Seen

PATIENCE_S = 30.0


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        self.cause = cause


class GetTimeoutError(RayError):
    pass


class MadeUpRay:
    """The answers to ``look`` one after the other; then nothing is heard of the node any more,
    until it is let go."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, GetTimeoutError=GetTimeoutError
    )

    def __init__(self, *looks, invited=None):
        own = (version("heterps"), None)
        self._answers = {"look": list(looks), "invite": [invited or own], "start": [None]}
        self.cut_off, self._let_go = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *_: name)

    def get(self, reference, timeout):
        answers = self._answers[reference]
        if not answers:
            self.cut_off.set()
            if self._let_go.wait(0.01):
                raise RayError("\n")
            raise GetTimeoutError
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def let_go(self, handle):
        self._let_go.set()
        handle.end_by(time.monotonic() + PATIENCE_S)


@pytest.fixture
def now():
    return [1000.0]


@pytest.fixture
def follow(tmp_path, now):
    """A handle that has heard all that there is to hear."""
    followed = []

    def make(ray, log=tmp_path / "one.log"):
        followed.append(
            (ray, RayHandle(ProcessSpec("one", "module"), ray, ray, log, lambda: now[0]))
        )
        handle = followed[-1][1]
        deadline = time.monotonic() + PATIENCE_S
        while not (ray.cut_off.is_set() or handle._ended.is_set()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return handle

    yield make
    for ray, handle in followed:
        ray.let_go(handle)


def test_what_a_node_said_that_is_now_cut_off_counts_for_five_seconds(follow, now):
    handle = follow(MadeUpRay(Seen(None, True, True, b"")))
    now[0] += 4.9
    assert (handle.stopped(), handle.wants_to_run()) == (True, True)
    now[0] += 0.2
    assert (handle.stopped(), handle.wants_to_run()) == (False, False)
    assert handle.poll() is None


def test_a_full_disk_here_costs_the_log_and_not_the_news(follow):
    handle = follow(
        MadeUpRay(Seen(None, False, False, b"one\n"), Seen(3, False, False, b"two\n")),
        Path("/dev/full"),
    )
    assert (handle.poll(), handle.last_words()) == (3, "one / two")


def test_a_folder_that_the_node_cannot_use_is_said_and_would_be_wrong_again(follow):
    handle = follow(MadeUpRay(invited=RayTaskError(FolderError("ray.folder '/x': Read-only"))))
    with pytest.raises(ProcessError, match=r"not started: ray\.folder '/x': Read-only") as raised:
        handle.poll()
    assert raised.value.kind == "wrong"
    assert handle.stop() == 1


def test_another_version_on_the_node_would_be_wrong_again(follow):
    handle = follow(MadeUpRay(invited=("0.0.1", None)))
    with pytest.raises(ProcessError, match=r"its node has heterps 0\.0\.1, this one ") as raised:
        handle.poll()
    assert raised.value.kind == "wrong"


def test_an_actor_that_is_late_did_not_start_and_is_started_again(follow):
    handle = follow(MadeUpRay(invited=GetTimeoutError("Get timed out")))
    with pytest.raises(ProcessError, match=r"did not start in 120 s") as raised:
        handle.poll()
    assert raised.value.kind == "stuck"
    assert handle.stop() == -9


def test_an_actor_that_fails_otherwise_tells_why_and_is_started_again(follow):
    late = TimeoutError("the run's key was not handed over in time")
    handle = follow(MadeUpRay(invited=RayTaskError(late)))
    assert handle.poll() == -9
    assert handle.last_words() == f"its actor failed: TimeoutError: {late}"
