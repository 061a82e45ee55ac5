import pytest

from heterps.errors import ProcessError
from heterps.runtime.engines.ray import handover
from heterps.runtime.engines.ray.handover import Inviter, hand_over


def test_a_secret_is_handed_over_once():
    inviter = Inviter("127.0.0.1")
    hand_over("one", inviter.invitation, b"\0kept\n")
    assert inviter.secret() == b"\0kept\n"


def test_who_is_not_there_is_an_error_in_time(monkeypatch):
    monkeypatch.setattr(handover, "_PATIENCE_MS", 200)
    inviter = Inviter("127.0.0.1")
    with pytest.raises(TimeoutError, match="was not handed over"):
        inviter.secret()
    with pytest.raises(ProcessError, match="process 'one' was not started: tcp://127"):
        hand_over("one", inviter.invitation, b"kept")
