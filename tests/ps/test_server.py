import socket
import threading
import time

import numpy as np
import pytest

from heterps.errors import InputError, ServerError, WireError
from heterps.ps.client import Client
from heterps.ps.peers import FORGET_AFTER_S, REMEMBERED_CALLS, CallLog
from heterps.ps.protocol import DenseSpec, TableSpec
from heterps.ps.requests import Answer
from heterps.ps.server import Server
from heterps.ps.service import Service
from heterps.testing.servers import LossyLine, RawPeer
from heterps.wire.frames import MAX_BUFFER_BYTES, as_buffer
from heterps.wire.segments import Segment
from heterps.wire.sessions import Greeting, read_refusal

KEY = bytes(range(32))
DIM = 4
ONES = np.ones((1, DIM), np.float32)


@pytest.fixture
def server(tmp_path):
    """A server in a thread of this process, at generation 3."""
    server = Server(KEY, generation=3)
    server.bind(f"ipc://{tmp_path}/s")
    server.bind("tcp://127.0.0.1:*")
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server
    server.stop()
    thread.join()


@pytest.fixture
def client(server):
    with Client(server.addresses[:1], KEY, generation=3, timeout_s=10) as client:
        yield client


@pytest.fixture
def table(client):
    return client.create_table("t", TableSpec(dim=DIM, rule="sgd", lr=1.0, initial="zeros"))


def fields(call: int, **more: object) -> dict[str, object]:
    return {"call": call, "patience_s": 5.0, "table": "t", **more}


# -- who may speak


@pytest.mark.parametrize("transport", [0, 1])
def test_a_stranger_is_refused(server, transport):
    address = server.addresses[transport]
    with (
        Client([address], bytes(32), generation=3, timeout_s=10) as stranger,
        pytest.raises(ServerError, match="refused this client: not this run's key"),
    ):
        stranger.ping()


@pytest.mark.parametrize(("generation", "problem"), [(2, "2 is over"), (4, "4 has not begun")])
def test_another_generation_is_refused(server, generation, problem):
    refused = pytest.raises(ServerError, match=f"generation {problem}.*at 3")
    with Client(server.addresses[:1], KEY, generation=generation) as other, refused:
        other.ping()


def test_after_advancing_older_clients_change_nothing(server, client, table):
    with Client(server.addresses[:1], KEY, generation=3) as older:
        stale = older.table("t")
        stale.push([1], ONES)
        client.advance(4)
        with pytest.raises(ServerError, match="generation 3 is over; this server is at 4"):
            stale.push([1], ONES)
        with pytest.raises(ServerError, match="generation 3 is over"):
            stale.pull([1])
    assert table.pull([1]).tolist() == [[-1.0] * DIM]


def test_a_signed_message_of_an_older_generation_is_refused(server, table):
    with RawPeer(server.addresses[0], KEY, 3) as peer:
        session = peer.greet()
        session.generation = 2
        buffers = [as_buffer(np.array([1])), as_buffer(ONES)]
        answer = session.open(peer.ask(session.seal("push", fields(1, sequence=1), buffers)))
    assert answer.fields["problem"] == "generation 2 is over; this server is at 3"
    assert table.step == 0


def test_a_replayed_message_is_refused_and_changes_nothing(server, table):
    with (
        RawPeer(server.addresses[0], KEY, 3) as peer,
        RawPeer(server.addresses[1], KEY, 3) as thief,
    ):
        session = peer.greet()
        buffers = [as_buffer(np.array([1])), as_buffer(ONES)]
        recorded = session.seal("push", fields(1, sequence=1), buffers)
        assert session.open(peer.ask(recorded)).verb == "done"
        for line in (peer, thief):
            assert "came again" in str(read_refusal(line.ask(recorded)))
    assert table.step == 1


def test_an_unknown_session_is_refused(server):
    with RawPeer(server.addresses[0], KEY, 3) as peer:
        assert "unknown session" in str(read_refusal(peer.ask([b"x", b"y" * 48])))


def test_a_hello_with_another_key_is_refused(server):
    with RawPeer(server.addresses[0], KEY, 3) as peer:
        answer = peer.ask(Greeting(bytes(32), bytes(16), 3).hello())
    assert read_refusal(answer) == "not signed with this run's key"


def test_a_forgotten_session_is_opened_again_by_the_client(server, client, table):
    server._peers.forget_all(3)
    table.push([1], ONES)
    assert table.step == 1


def test_a_client_that_is_silent_for_long_is_forgotten(server, client):
    client.ping()
    assert len(server._peers) == 1
    server._peers.forget_silent(time.monotonic() + FORGET_AFTER_S - 5)
    assert len(server._peers) == 1
    server._peers.forget_silent(time.monotonic() + FORGET_AFTER_S + 5)
    assert len(server._peers) == 0


def test_a_server_of_another_place_is_refused(server):
    refused = pytest.raises(ServerError, match="it is shard 0 of 1")
    with Client(server.addresses, KEY, generation=3) as client, refused:
        client.ping()


# -- once


def lose_first_done():
    """Loses the answer to the third call, whichever connection it comes on."""
    answers = iter(range(100))
    return lambda verb: verb == "done" and next(answers) == 2


def test_a_push_whose_answer_was_lost_is_applied_once(server, table):
    line = LossyLine(server.addresses[1], KEY, lose_first_done())
    try:
        with Client([line.address], KEY, generation=3, timeout_s=3, retries=2) as client:
            there = client.table("t")
            there.push([1], ONES)
            there.push([1], ONES)  # answered, but the answer is lost
            there.push([2], ONES)
    finally:
        line.close()
    assert table.step == 3
    assert table.pull([1, 2]).tolist() == [[-2.0] * DIM, [-1.0] * DIM]


def test_retries_end_with_an_error_that_names_the_shard(server):
    line = LossyLine(server.addresses[1], KEY, lambda verb: verb == "done")
    try:
        with Client([line.address], KEY, generation=3, timeout_s=0.9, retries=2) as client:
            started = time.monotonic()
            with pytest.raises(ServerError, match=r"shard 0 at tcp://127.*: no answer"):
                client.ping()
            assert time.monotonic() - started < 3
    finally:
        line.close()


def test_calls_are_remembered_in_a_window():
    log = CallLog()
    for number in range(REMEMBERED_CALLS + 5):
        log.add(b"a", number, number)
    assert log.find(b"a", REMEMBERED_CALLS) == REMEMBERED_CALLS
    assert log.find(b"a", REMEMBERED_CALLS + 5) is None
    assert log.find(b"b", 0) is None
    with pytest.raises(InputError, match="too old"):
        log.find(b"a", 4)


# -- failures


def test_errors_reach_the_client_as_one_line_and_the_server_goes_on(server, client, table):
    table.announce(0, 2)
    with pytest.raises(InputError, match="announced with 2 parts"):
        table.announce(0, 3)
    client.ping()


@pytest.mark.parametrize(
    ("verb", "more", "arrays", "problem"),
    [
        ("fly", {}, [], "unknown verb"),
        ("pull", {}, [], "ids|missing"),
        ("pull", {"table": 3}, [np.arange(3)], "expected text"),
        ("pull", {"table": "x"}, [np.arange(3)], "unknown table"),
        ("pull", {}, [np.arange(3, dtype=np.int32)], "expected a vector of i8"),
        ("pull", {}, [np.zeros((2, 2), np.int64)], "expected a vector of i8"),
        ("pull", {"batch": "one"}, [np.arange(3)], "expected a whole number"),
        ("pull", {"dtype": "f8"}, [np.arange(3)], "expected one of f4"),
        ("pull", {"segment": 1, "offset": 0}, [np.arange(3)], "no segment 1"),
        ("pull", {"offset": -1}, [np.arange(3)], "rows of"),
        ("push", {"sequence": 1}, [np.arange(3), ONES], "expected floats"),
        ("push", {"sequence": 1}, [np.arange(1)], "missing"),
        ("push", {"sequence": 1, "lr": "fast"}, [np.arange(1), ONES], "finite number"),
        ("push", {}, [np.arange(1), ONES], "expected a whole number, got None"),
        ("create", {"spec": {"dim": "x"}}, [], "dim"),
        ("create", {"spec": {"size": 1}}, [], "unknown field"),
        ("create", {"spec": {}}, [], "needs its dim"),
        ("attach", {"segment": 1, "path": "/etc/passwd", "size_bytes": 8}, [], "no place"),
        ("load", {"path": {"at": "/nowhere"}, "sequence": 1}, [], "cannot be read"),
        ("load", {"path": "/nowhere", "sequence": 1}, [], "expected named values"),
        ("advance", {"generation": 3, "sequence": 1}, [], "at 3"),
    ],
)
def test_bad_requests_are_answered_with_their_problem(server, table, verb, more, arrays, problem):
    with RawPeer(server.addresses[0], KEY, 3) as peer:
        session = peer.greet()
        buffers = [as_buffer(array) for array in arrays]
        answer = session.open(peer.ask(session.seal(verb, fields(7, **more), buffers)))
    assert answer.verb == "failed"
    assert answer.fields["call"] == 7
    text = f"{answer.fields.get('path')}: {answer.fields['problem']}"
    assert "\n" not in text
    assert any(part in text for part in problem.split("|"))
    assert table.step == 0


def test_a_segment_that_the_server_cannot_open_is_done_without(client, table, monkeypatch):
    def refuse(number, path, size_bytes):
        raise WireError("another host's memory")

    monkeypatch.setattr(Segment, "open", refuse)
    ids = np.arange(50)
    table.push(ids, np.ones((50, DIM), np.float32))
    assert table.pull(ids).tolist() == [[-1.0] * DIM] * 50


def test_a_server_says_where_it_cannot_listen():
    server = Server(KEY)
    try:
        with pytest.raises(ServerError, match="cannot listen on ipc:///nowhere/s"):
            server.bind("ipc:///nowhere/s")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ServerError, match=rf":{port}: .* in use; choose another port, or"):
                server.bind(f"tcp://127.0.0.1:{port}")
    finally:
        server.close()


# -- loading


def slow_loads(monkeypatch) -> tuple[threading.Event, threading.Event]:
    """Of a load: it is about to make a new table; it may go on."""
    begun, go = threading.Event(), threading.Event()
    make_table = Service.make_table

    def slowly(service, spec):
        begun.set()
        assert go.wait(20)
        return make_table(service, spec)

    monkeypatch.setattr(Service, "make_table", slowly)
    return begun, go


def test_a_pull_that_waits_for_a_batch_waits_for_a_load_too(client, table, tmp_path, monkeypatch):
    table.push([1], ONES)
    client.save(tmp_path / "before")
    table.accumulate(0, (0, 0), [1], ONES, parts=1)
    client.save(tmp_path / "after")
    client.load(tmp_path / "before")
    waiting = table.pull_async([1], batch=1)
    begun, go = slow_loads(monkeypatch)
    loading = threading.Thread(target=client.load, args=(tmp_path / "after",))
    loading.start()
    assert begun.wait(20)
    assert client.stats()[0]["tables"]["t"]["rows"] == 1
    assert not waiting.done()
    go.set()
    loading.join(20)
    assert waiting.result(20).tolist() == [[-2.0] * DIM]


# -- what is too large


def test_a_call_that_is_too_large_fails_alone(server):
    with Client(server.addresses[1:], KEY, generation=3, timeout_s=10) as client:
        table = client.create_table("t", TableSpec(dim=DIM))
        waiting = table.pull_async([1], batch=1)
        with pytest.raises(WireError, match=r"'dense_create'.* at most"):
            client.create_tensor("w", np.zeros(MAX_BUFFER_BYTES // 4 + 1, np.float32), DenseSpec())
        table.accumulate(0, (0, 0), [1], ONES, parts=1)
        assert waiting.result(20).shape == (1, DIM)
        assert client.stats()[0]["clients"] == 1


def test_an_answer_that_cannot_be_sent_is_an_error_of_its_call(server, client, table, monkeypatch):
    waiting = table.pull_async([1], batch=1)
    large = Answer({"text": "x" * (1 << 17)})
    monkeypatch.setattr(Service, "_rows", lambda *_: large)
    table.accumulate(0, (0, 0), [1], ONES, parts=1)
    with pytest.raises(ServerError, match="a header of"):
        waiting.result(20)
    client.ping()
