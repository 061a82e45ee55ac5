"""A live server and messages that no client of ours would send."""

import random
import socket
from collections.abc import Iterator

import msgpack
import numpy as np
import pytest

from heterps.ps.client import Client
from heterps.ps.processes import registrations
from heterps.ps.protocol import TableSpec
from heterps.testing.servers import RawPeer, serving
from heterps.wire.frames import MAX_BUFFER_BYTES, Header, as_buffer, encode_header
from heterps.wire.keys import read_key
from heterps.wire.sessions import Parts, Session, _mac

DIM = 4
VERBS = ("pull", "push", "accumulate", "announce", "create", "describe", "prefetch", "set_lr",
         "attach", "detach", "conclude", "dense_pull", "dense_push", "dense_create", "stats",
         "ping", "fly", "")  # fmt: skip
ODD = (None, True, -1, 0, 3, 2**63, 1.5, float("nan"), "", "t", "x" * 300, b"\xff" * 20, [], {},
       {"dim": 3}, {"dim": 10**12}, [[[[1]]]])  # fmt: skip
NAMES = ("table", "batch", "parts", "lr", "micro_batch", "layer", "segment", "offset", "dtype",
         "spec", "path", "size_bytes", "tensor", "sequence", "call", "patience_s")  # fmt: skip


class Nonsense:
    """Messages of every wrong kind, drawn by a seed."""

    def __init__(self, session: Session, seed: int) -> None:
        self._session = session
        self._random = random.Random(seed)
        self._kinds = [
            self.random_bytes,
            self.truncated,
            self.flipped,
            self.odd_fields,
            self.wrong_arrays,
            self.wrong_frames,
            self.huge,
            self.deep,
            self.many_parts,
            self.not_a_header,
        ]

    def __iter__(self) -> Iterator[Parts]:
        while True:
            yield self._random.choice(self._kinds)()

    def random_bytes(self) -> Parts:
        sizes = [self._random.choice([0, 1, 48, 200]) for _ in range(self._random.randint(1, 5))]
        return [self._random.randbytes(size) for size in sizes]

    def truncated(self) -> Parts:
        parts = [bytes(part) for part in self._valid()]
        at = self._random.randrange(len(parts))
        parts[at] = parts[at][: self._random.randrange(max(1, len(parts[at])))]
        return parts[: self._random.randint(1, len(parts))] if at else parts

    def flipped(self) -> Parts:
        parts = [bytearray(part) for part in self._valid()[:2]]
        part = self._random.choice(parts)
        part[self._random.randrange(len(part))] ^= 1 << self._random.randrange(8)
        return [bytes(part) for part in parts]

    def odd_fields(self) -> Parts:
        fields = {name: self._random.choice(ODD) for name in self._random.sample(NAMES, 6)}
        return self._session.seal(self._random.choice(VERBS), fields)

    def wrong_arrays(self) -> Parts:
        shapes = [(), (0,), (3,), (2, 2), (3, DIM), (1, 1, 1)]
        arrays = [
            np.zeros(self._random.choice(shapes), self._random.choice(["i8", "i4", "f4", "u2"]))
            for _ in range(self._random.randint(0, 3))
        ]
        verb = self._random.choice(["pull", "push", "accumulate", "dense_create", "prefetch"])
        fields = {
            "table": "t",
            "sequence": -5,
            "call": 1,
            "batch": -9,
            "micro_batch": 0,
            "layer": 0,
        }
        if verb == "push":
            fields["sequence"] = "never"
        return self._session.seal(verb, fields, [as_buffer(array) for array in arrays])

    def wrong_frames(self) -> Parts:
        parts = [*self._valid()]
        return [*parts[:2], *[bytes(self._random.randrange(50)) for _ in parts[1:]]]

    def huge(self) -> Parts:
        shape = self._random.choice([[2**40], [2**31, 2**31], [2**62] * 8, [0, 2**50], [2**30]])
        return self._signed([1, 0, 2**40, "pull", {"table": "t"}, [["f4", shape, 0, 0]]])

    def deep(self) -> Parts:
        value: object = 0
        for _ in range(self._random.choice([8, 100, 1000])):
            value = [value] if self._random.random() < 0.5 else {"a": value}
        raw = bytes([0x91]) * self._random.choice([10, 5000, 60_000])
        if self._random.random() < 0.5:
            return [raw, self._session.id + _mac(raw, self._session._out_key)]
        return self._signed([1, 0, 2**40, "create", {"spec": value}, []])

    def many_parts(self) -> Parts:
        return [b"x"] * self._random.randint(19, 200)

    def not_a_header(self) -> Parts:
        return self._signed(self._random.choice([3, None, [], [1] * 6, [1, 0, 1, "x", [], {}]]))

    def _valid(self) -> Parts:
        buffers = [as_buffer(np.arange(5))]
        return self._session.seal("pull", {"table": "t", "call": 1, "patience_s": 0.0}, buffers)

    def _signed(self, values: object) -> Parts:
        raw = msgpack.packb(values)
        return [raw, self._session.id + _mac(raw, self._session._out_key)]


def resident_bytes(client: Client) -> int:
    return int(client.stats()[0]["resident_bytes"])


def throw(address: str, key: bytes, count: int, seed: int) -> int:
    """Sends nonsense, a few messages ahead of the answers; how many were answered."""
    answered = 0
    with RawPeer(address, key) as peer:
        nonsense = iter(Nonsense(peer.greet(), seed))
        for sent in range(count):
            peer.say(next(nonsense))
            if sent >= 50:
                peer.hear()
                answered += 1
        while answered < count:
            peer.hear()
            answered += 1
    return answered


def check(tmp_path, warm_up: int, count: int) -> None:
    with serving(tmp_path, 1, tcp=True) as client:
        table = client.create_table("t", TableSpec(dim=DIM))
        key, address = read_key(tmp_path), registrations(tmp_path)[0].addresses[0]
        throw(address, key, warm_up, seed=1)
        before = resident_bytes(client)
        assert throw(address, key, count, seed=2) == count
        grown = resident_bytes(client) - before
        assert (len(table), table.step, table.committed) == (0, 0, -1)
        table.push([1], np.ones((1, DIM), np.float32))
        assert len(table) == 1
    assert grown < 4 << 20


def test_a_server_outlives_malformed_messages(tmp_path):
    check(tmp_path, 300, 600)


@pytest.mark.slow
def test_ten_thousand_malformed_messages_leave_a_server_as_it_was(tmp_path):
    check(tmp_path, 2_000, 10_000)


@pytest.mark.slow
def test_bytes_that_are_not_even_zeromq_are_survived(tmp_path):
    drawn = random.Random(0)
    with serving(tmp_path, 1, tcp=True) as client:
        host, port = registrations(tmp_path)[0].addresses[1].removeprefix("tcp://").split(":")
        for _ in range(50):
            with socket.create_connection((host, int(port))) as line:
                line.sendall(drawn.randbytes(drawn.randint(1, 500)))
        client.ping()


@pytest.mark.slow
def test_a_frame_beyond_the_limit_ends_only_its_own_connection(tmp_path):
    with serving(tmp_path, 1, tcp=True) as client:
        key, address = read_key(tmp_path), registrations(tmp_path)[0].addresses[1]
        before = resident_bytes(client)
        with RawPeer(address, key) as peer:
            peer.greet()
            peer.say([np.zeros(MAX_BUFFER_BYTES + 1, np.uint8).data])
            with pytest.raises(TimeoutError):
                peer.hear(1.0)
        client.ping()
        assert resident_bytes(client) - before < 64 << 20


def test_a_valid_header_is_what_the_fuzz_starts_from():
    assert encode_header(Header(0, 1, "pull", {}, ())) == msgpack.packb([1, 0, 1, "pull", {}, []])
