import math
import os
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from heterps.errors import InputError, WorkerLostError
from heterps.runtime.channel import Mesh
from heterps.runtime.channel.identity import Identity
from heterps.runtime.channel.peer import Place
from heterps.runtime.pipeline import Routing
from heterps.testing.engines import lives
from heterps.testing.meshes import (
    Line,
    address_for,
    echoing,
    process_context,
    run_line,
    work,
)
from heterps.testing.servers import RawPeer
from heterps.wire.segments import PREFIX, Segment, segment_folder
from heterps.wire.sessions import Greeting

KEY = secrets.token_bytes(32)
TRANSPORTS = ["ipc", "tcp"]


def leftovers() -> set[str]:
    """Segments with a name, of this process or of none."""
    named = {path.name for path in segment_folder().glob(f"{PREFIX}*")}
    makers = {name: int(name.removeprefix(PREFIX).split("-")[0]) for name in named}
    return {name for name in named if makers[name] == os.getpid() or not lives(makers[name])}


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path):
    before = leftovers()
    yield
    assert leftovers() <= before
    assert list(tmp_path.rglob("*.sock")) == []


class Pair:
    """A worker and one of the next stage, whose turns are taken here."""

    def __init__(self, folder: Path, transport: str = "ipc", **options) -> None:
        self.one, self.other = Mesh(KEY, 3, (0, 0), **options), Mesh(KEY, 3, (1, 0), **options)
        self.address = self.other.listen(address_for(transport, folder, "other"))
        with echoing(self.other):
            self.one.connect({(1, 0): self.address}, timeout_s=20)

    def forward(self, number: int, tensors) -> dict[str, torch.Tensor]:
        self.one.send_forward(0, number, tensors)
        (arrived,) = self.other.receive(20)
        assert (arrived.kind, arrived.micro_batch, arrived.replica) == ("forward", number, 0)
        return arrived.tensors

    def back(self, number: int, tensors) -> dict[str, torch.Tensor]:
        self.other.send_back(0, number, tensors)
        (arrived,) = self.one.receive(20)
        assert (arrived.kind, arrived.micro_batch) == ("back", number)
        return arrived.tensors

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.one.close()
        self.other.close()


def join(mesh: Mesh, address: str) -> None:
    """Until it is refused, which may be after the handshake."""
    mesh.connect({(1, 0): address}, timeout_s=20)
    mesh.receive(20)


def batch(values: int) -> dict[str, torch.Tensor]:
    return {
        "x": torch.randn(values // 8, 8),
        "ids": torch.arange(values),
        "none": torch.empty(0, 3),
        "flag": torch.tensor(True),
    }


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("encrypt", [False, True])
def test_tensors_go_forward_and_gradients_back(tmp_path, transport, encrypt):
    with Pair(tmp_path, transport, encrypt=encrypt) as pair:
        for number, values in enumerate([8, 800, 80_000, 80_000, 400_000, 8, 80_000]):
            tensors = batch(values)
            assert equal(pair.forward(number, tensors), tensors)
            assert equal(pair.back(number, {"x": tensors["x"]}), {"x": tensors["x"]})
        assert (pair.one.shared_bytes > 0) == (transport == "ipc")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_floats_travel_as_bfloat16_if_asked_for(tmp_path, transport):
    tensors = batch(80_000)
    with Pair(tmp_path, transport, wire_dtype="bf16") as pair:
        for number in range(3):
            found = pair.forward(number, tensors)
            assert torch.equal(found["x"], tensors["x"].bfloat16().float())
            assert torch.equal(found["ids"], tensors["ids"])
        pair.one.send_forward(0, 3, tensors, exact=["x"])
        assert equal(pair.other.receive(20)[0].tensors, tensors)


def test_many_names_go_in_one_message(tmp_path):
    for transport in TRANSPORTS:
        with Pair(tmp_path, transport) as pair:
            for size in (1, 9_000, 9_000):
                tensors = {f"slot {n}": torch.full((size,), n) for n in range(60)}
                assert equal(pair.forward(size, tensors), tensors)


def test_what_arrived_keeps_its_value_while_it_is_looked_at(tmp_path):
    with Pair(tmp_path) as pair:
        kept = {}
        for number in range(50):
            kept[number] = pair.forward(number, {"x": torch.full((10_000,), float(number))})["x"]
            kept.pop(number - 7, None)
            pair.back(number, {"x": torch.zeros(1)})
        assert all(bool((x == number).all()) for number, x in kept.items())
        assert pair.one.shared_bytes <= 8 << 20
    assert all(bool((x == number).all()) for number, x in kept.items()), "also after the end"


def lent_by(mesh: Mesh) -> int:
    """How many pieces of its memory are with others."""
    return sum(len(peer.lender._lent) for peer in mesh._peers())


@pytest.mark.slow
def test_memory_is_given_back_without_messages_the_other_way(tmp_path):
    with Pair(tmp_path) as pair:
        pair.other._next_watch = math.inf  # no pings, which would bring it back too
        for number in range(100):
            pair.forward(number, {"x": torch.zeros(100_000)})
            pair.other.receive(0)  # in which it says what it is done with
            deadline = time.monotonic() + 20
            pair.one.receive(0)
            while lent_by(pair.one) > 4 and time.monotonic() < deadline:
                pair.one.receive(0.01)
            assert lent_by(pair.one) <= 4
        assert 0 < pair.one.shared_bytes <= 8 << 20


def test_full_shared_memory_makes_messages_carry_their_bytes(tmp_path, monkeypatch):
    def refuse(number, size_bytes):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Segment, "create", refuse)
    tensors = batch(80_000)
    with Pair(tmp_path) as pair:
        for number in range(3):
            assert equal(pair.forward(number, tensors), tensors)
        assert pair.one.shared_bytes == 0


def test_a_worker_that_failed_is_lost_to_its_peers(tmp_path):
    with Pair(tmp_path) as pair:
        pair.one.close(failed=True)
        with pytest.raises(WorkerLostError, match="stage 0, replica 0: the connection was lost"):
            pair.other.receive(20)


def test_receiving_ends_in_time_with_nothing(tmp_path):
    with Pair(tmp_path) as pair:
        started = time.monotonic()
        assert pair.one.receive(0.3) == []
        assert 0.25 < time.monotonic() - started < 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_was_sent_arrives_though_the_sender_closes(tmp_path, transport):
    with Pair(tmp_path, transport) as pair:
        pair.forward(0, batch(80))
        tensors = batch(400_000)
        pair.other.send_back(0, 0, tensors)
        pair.other.close()
        (arrived,) = pair.one.receive(20)
        assert equal(arrived.tensors, tensors)
        assert pair.one.receive(0.5) == [], "who says goodbye is not lost"
        with pytest.raises(WorkerLostError, match="stage 1, replica 0: is not connected"):
            pair.one.send_forward(0, 1, tensors)


@pytest.mark.slow
@pytest.mark.parametrize("encrypt", [False, True])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stranger_is_refused_and_changes_nothing(tmp_path, transport, encrypt):
    with Pair(tmp_path, transport, encrypt=encrypt) as pair, echoing(pair.other):
        with (
            Mesh(secrets.token_bytes(32), 3, (0, 1), encrypt=encrypt) as stranger,
            pytest.raises(WorkerLostError, match="stage 1, replica 0: "),
        ):
            stranger.connect({(1, 0): pair.address}, timeout_s=1)
        pair.one.send_forward(0, 0, batch(8))
        assert pair.one.receive(20)[0].micro_batch == 0


@pytest.mark.parametrize(
    ("me", "generation", "problem"),
    [
        ((0, 1), 2, "generation 2 is over; this worker is at 3"),
        ((0, 1), 4, "generation 4 has not begun here"),
        ((0, 0), 3, "stage 0 replica 0 is connected already"),
    ],
)
def test_who_does_not_belong_here_is_told_why(tmp_path, me, generation, problem):
    with (
        Pair(tmp_path) as pair,
        echoing(pair.other),
        Mesh(KEY, generation, me) as late,
        pytest.raises(WorkerLostError, match=problem),
    ):
        join(late, pair.address)


def test_a_worker_of_another_stage_or_place_is_refused(tmp_path):
    with Pair(tmp_path) as pair, echoing(pair.other):
        with (
            Mesh(KEY, 3, (0, 1)) as other,
            pytest.raises(WorkerLostError, match="stage 1 replica 0 answers there"),
        ):
            other.connect({(1, 1): pair.address}, timeout_s=20)
        with (
            Mesh(KEY, 3, (1, 1)) as other,
            pytest.raises(WorkerLostError, match="stage 1 replica 1 has nothing to send"),
        ):
            other.connect({(2, 0): pair.address}, timeout_s=20)


def test_nobody_there_is_an_error_in_time_that_names_the_peer(tmp_path):
    with (
        Mesh(KEY, 0, (0, 0)) as mesh,
        pytest.raises(WorkerLostError, match=r"stage 1, replica 2: no connection in 0.3 s") as e,
    ):
        mesh.connect({(1, 2): f"ipc://{tmp_path}/nobody.sock"}, timeout_s=0.3)
    assert (e.value.stage, e.value.replica) == (1, 2)


def test_one_side_that_encrypts_alone_is_told_so(tmp_path):
    with (
        Mesh(KEY, 0, (1, 0), encrypt=True) as other,
        Mesh(KEY, 0, (0, 0)) as mesh,
    ):
        address = other.listen(address_for("ipc", tmp_path, "other"))
        with echoing(other), pytest.raises(WorkerLostError, match="stage 1, replica 0"):
            mesh.connect({(1, 0): address}, timeout_s=2)


def test_a_bad_address_is_an_error_that_names_it(tmp_path):
    with Mesh(KEY, 0, (0, 0)) as mesh:
        with pytest.raises(InputError, match="too long"):
            mesh.listen(f"ipc://{tmp_path}/{'long' * 40}.sock")
        with pytest.raises(InputError, match="cannot listen on"):
            mesh.listen(f"ipc://{tmp_path}/no/such/folder.sock")
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            pytest.raises(InputError, match="in use; choose another port, or"),
        ):
            mesh.listen(f"tcp://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(InputError, match="stage 3 replica 0"):
            mesh.connect({(3, 0): "tcp://127.0.0.1:1"})


def raw_worker(address: str, generation: int = 3, replica: int = 1) -> RawPeer:
    peer = RawPeer(address, KEY, generation)
    client = Identity(KEY, generation, Place(0, replica)).client()
    peer._greeting = Greeting(KEY, client, generation)
    return peer


def test_messages_that_cannot_be_trusted_change_nothing(tmp_path):
    with Pair(tmp_path) as pair, raw_worker(pair.address) as raw, echoing(pair.other):
        session = raw.greet()
        raw.say([b"", b""])
        raw.say([b"x" * 100, bytes(48), b"y"])
        raw.say([b"x"] * 40)
        first = session.seal("ready", {"done": []})
        raw.say(first)
        raw.say(first)
        raw.say([first[0], b"0" * 48])
        pair.one.send_forward(0, 0, batch(8))
        assert pair.one.receive(20)[0].micro_batch == 0
        while pair.other.refused < 5:
            time.sleep(0.01)


NONSENSE = [
    ("forward", {"micro_batch": -1, "tensors": b"\x90", "done": []}),
    ("forward", {"micro_batch": "x", "tensors": b"\x90", "done": []}),
    ("forward", {"micro_batch": 0, "tensors": b"\xc1", "done": []}),
    ("forward", {"micro_batch": 0, "tensors": b"\x90"}),
    ("back", {"micro_batch": 0, "tensors": b"\x90", "done": []}),
    ("attached", {"segment": 9, "ok": True, "done": []}),
    ("done", {"done": [[1, 2]]}),
    ("done", {"done": [3]}),
    ("dance", {"done": []}),
]


@pytest.mark.parametrize(("verb", "fields"), NONSENSE)
def test_a_peer_that_makes_no_sense_is_lost_by_name(tmp_path, verb, fields):
    with Pair(tmp_path) as pair, raw_worker(pair.address) as raw:
        with echoing(pair.other):
            session = raw.greet()
        raw.say(session.seal("ready", {"done": []}))
        raw.say(session.seal(verb, fields))
        with pytest.raises(WorkerLostError, match="stage 0, replica 1: sent what makes no sense"):
            pair.other.receive(20)


def test_a_segment_that_is_not_there_is_answered_with_no(tmp_path):
    with Pair(tmp_path) as pair, raw_worker(pair.address) as raw:
        with echoing(pair.other):
            session = raw.greet()
            raw.say(session.seal("ready", {"done": []}))
            fields = {"segment": 1, "path": "/etc/passwd", "size_bytes": 100, "done": []}
            answer = session.open(raw.ask(session.seal("attach", fields)))
        assert answer.fields["ok"] is False


def started(line: Line, me: tuple[int, int], folder: Path):
    """A worker process that has said where it listens."""
    book, theirs = process_context().Pipe()
    process = process_context().Process(target=work, args=(line, KEY, me, folder, theirs))
    process.start()
    return process, book, book.recv()


def receive_all(mesh: Mesh) -> None:
    while mesh.receive(20):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_killed_peer_is_noticed_and_named(tmp_path, transport, side):
    line = Line(Routing(16, (1, 1)), 1, 4, 10, transport, {})
    stage = 0 if side == "before" else 1
    with Mesh(KEY, 1, (1 - stage, 0)) as mesh:
        address = mesh.listen(address_for(transport, tmp_path, "here"))
        process, book, theirs = started(line, (stage, 0), tmp_path)
        book.send({(1, 0): address} if stage == 0 else {})
        if stage == 0:
            assert mesh.receive(20)
        else:
            mesh.connect({(1, 0): theirs}, timeout_s=20)
        os.kill(process.pid, signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(WorkerLostError, match=f"stage {stage}, replica 0: the connection"):
            receive_all(mesh)
        assert time.monotonic() - killed < 2
        process.join()
    (tmp_path / f"{stage}-0.sock").unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replicas", "transport", "options", "values"),
    [
        ((1, 7, 3), "ipc", {}, 20_000),
        ((1, 7, 3), "tcp", {}, 20_000),
        ((2, 1, 2), "ipc", {"encrypt": True, "wire_dtype": "bf16"}, 20_000),
    ],
)
def test_every_micro_batch_passes_every_stage_once_and_in_order(
    tmp_path, replicas, transport, options, values
):
    batches, each = 125, 8
    if "wire_dtype" in options:
        batches, each = 25, 10  # numbers that bfloat16 can hold
    line = Line(Routing(16, replicas), batches, each, values, transport, options)
    reports = run_line(line, KEY, tmp_path)
    for stage, count in enumerate(replicas):
        here = [reports[stage, replica] for replica in range(count)]
        for lists in ([r.forward for r in here], [r.backward for r in here]):
            assert all(numbers == sorted(numbers) for numbers in lists)
            assert Counter(n for numbers in lists for n in numbers) == Counter(
                range(batches * each)
            )
        credit = line.routing.credit(stage)
        assert all(r.most_in_flight <= credit for r in here)
    assert sum(r.shared_bytes for r in reports.values()) <= 64 << 20
    assert max(r.resident_bytes for r in reports.values()) < 400 << 20


@pytest.mark.slow
def test_meshes_of_many_threads_connect_in_any_order(tmp_path):
    with ExitStack() as stack:
        first = [stack.enter_context(Mesh(KEY, 0, (0, r))) for r in range(3)]
        second = [stack.enter_context(Mesh(KEY, 0, (1, r))) for r in range(2)]
        third = stack.enter_context(Mesh(KEY, 0, (2, 0)))
        at = {
            (1, r): m.listen(address_for("ipc", tmp_path, f"1-{r}")) for r, m in enumerate(second)
        }
        last = {(2, 0): third.listen(address_for("ipc", tmp_path, "2"))}
        threads = [threading.Thread(target=m.connect, args=(at,)) for m in first]
        threads += [threading.Thread(target=m.connect, args=(last,)) for m in second]
        for thread in threads[:3]:
            thread.start()
        time.sleep(0.2)
        with echoing(third):
            for thread in threads[3:]:
                thread.start()
            for thread in threads[3:]:
                thread.join(20)
        with echoing(second[0]), echoing(second[1]):
            for thread in threads[:3]:
                thread.join(20)
            for mesh in first:
                mesh.send_forward(1, 7, {"x": torch.ones(3)})
                assert mesh.receive(20)[0].micro_batch == 7
