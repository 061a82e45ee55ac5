import numpy as np
import pytest

from heterps.errors import WireError
from heterps.wire import sessions
from heterps.wire.frames import MAX_HEADER_BYTES, as_buffer
from heterps.wire.sessions import (
    Greeting,
    Parts,
    Session,
    read_hello,
    read_refusal,
    refusal,
    welcome,
)

KEY = bytes(range(32))


def views(parts: Parts) -> list[memoryview]:
    return [memoryview(part) for part in parts]


@pytest.fixture
def pair() -> tuple[Session, Session]:
    """A client's and a server's end."""
    greeting = Greeting(KEY, b"c" * 16, 7)
    server, parts = welcome(read_hello(views(greeting.hello()), KEY), KEY, 7, {"shard": 2})
    client, about = greeting.accept(views(parts))
    assert about == {"shard": 2}
    return client, server


def test_both_ends_understand_each_other(pair):
    client, server = pair
    sent = np.arange(6, dtype=np.float32).reshape(2, 3)
    read = server.open(views(client.seal("push", {"table": "a"}, [as_buffer(sent)])))
    assert (read.verb, read.generation, read.fields) == ("push", 7, {"table": "a"})
    np.testing.assert_array_equal(read.buffers[0].array, sent)
    assert client.open(views(server.seal("done", {}))).verb == "done"


def test_a_message_is_read_once(pair):
    client, server = pair
    parts = views(client.seal("push", {}))
    server.open(parts)
    with pytest.raises(WireError, match="came again"):
        server.open(parts)


def test_an_older_message_is_refused_after_a_newer(pair):
    client, server = pair
    older, newer = views(client.seal("push", {})), views(client.seal("push", {}))
    server.open(newer)
    with pytest.raises(WireError, match="came again or late"):
        server.open(older)


def test_a_message_does_not_fit_the_other_direction(pair):
    client, _ = pair
    with pytest.raises(WireError, match="not signed"):
        client.open(views(client.seal("push", {})))


def test_a_message_does_not_fit_another_session(pair):
    client, _ = pair
    other, _ = welcome(read_hello(views(Greeting(KEY, b"c" * 16, 7).hello()), KEY), KEY, 7, {})
    with pytest.raises(WireError, match="not signed"):
        other.open(views(client.seal("push", {})))


def test_any_changed_bit_of_a_header_is_noticed(pair):
    client, server = pair
    parts = views(client.seal("push", {"table": "a", "lr": 0.5}))
    for part in (0, 1):
        for bit in range(8 * len(parts[part])):
            changed = [bytearray(p) for p in parts]
            changed[part][bit // 8] ^= 1 << bit % 8
            if part == 1 and bit < 8 * 16:
                continue  # the session's number, by which the session is found
            with pytest.raises(WireError, match="not signed"):
                server.open(views(changed))
    assert server.open(parts).verb == "push"


def test_a_hello_needs_the_runs_key():
    with pytest.raises(WireError, match="not signed with this run's key"):
        read_hello(views(Greeting(bytes(32), b"c" * 16, 0).hello()), KEY)


def test_a_recorded_welcome_is_not_accepted_again():
    first, second = Greeting(KEY, b"c" * 16, 0), Greeting(KEY, b"c" * 16, 0)
    _, recorded = welcome(read_hello(views(first.hello()), KEY), KEY, 0, {})
    with pytest.raises(WireError, match="not signed"):
        second.accept(views(recorded))


@pytest.mark.parametrize("sizes", [[], [5], [5, 47], [5, 49], [5, 48] + [0] * 17])
def test_what_is_no_message_is_refused(sizes):
    with pytest.raises(WireError):
        read_hello([memoryview(bytes(size)) for size in sizes], KEY)


def test_a_long_header_is_refused_before_its_signature_is_looked_at(pair, monkeypatch):
    client, server = pair
    parts = views(client.seal("push", {}))
    monkeypatch.setattr(sessions, "_mac", None)
    with pytest.raises(WireError, match="a header of 65537 bytes"):
        server.open([memoryview(bytes(MAX_HEADER_BYTES + 1)), *parts[1:]])


def test_a_refusal_is_told_from_other_messages(pair):
    assert read_refusal(views(refusal("too large", 3))) == "too large"
    assert read_refusal(views(pair[0].seal("push", {}))) is None
