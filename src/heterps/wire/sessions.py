"""Who signed a message, and that it is new.

Both sides know the run's key. A client opens a session with a ``hello`` that holds a fresh number,
the server answers with a ``welcome`` that holds another; the session's key is derived from the
run's key and both, so that a message of another session (recorded, say) never fits. From then on
every header is signed, with one key for each direction, and its counter has to grow.
Buffers are not signed: who can change what is on the line needs CURVE against him.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heterps.errors import WireError
from heterps.wire.frames import (
    MAX_BUFFERS,
    Buffer,
    Header,
    attach_payload,
    check_header_size,
    decode_header,
    encode_header,
    payload,
)
from heterps.wire.keys import subkey

ID_BYTES = 16
MAC_BYTES = 32
NO_SESSION = bytes(ID_BYTES)
HELLO, WELCOME, REFUSED = "hello", "welcome", "refused"

Parts = list[bytes | memoryview]


class Session:
    """One end of a session: seals what goes out and opens what comes in.

    Not for several threads at once.
    """

    def __init__(self, id: bytes, key: bytes, generation: int, *, server: bool) -> None:
        self.id = id
        self.generation = generation
        to_server, to_client = subkey(key, "to server"), subkey(key, "to client")
        self._out_key, self._in_key = (to_client, to_server) if server else (to_server, to_client)
        self._sent = 0
        self._seen = 0

    def seal(self, verb: str, fields: Mapping[str, Any], buffers: Sequence[Buffer] = ()) -> Parts:
        self._sent += 1
        header = Header(self.generation, self._sent, verb, fields, tuple(buffers))
        return _signed(header, self.id, self._out_key)

    def open(self, parts: Sequence[memoryview]) -> Header:
        """Raises WireError for what this session's peer has not just sent."""
        header = _verified(parts, self._in_key)
        if header.counter <= self._seen:
            raise WireError(f"message {header.counter} came again or late")
        self._seen = header.counter
        return attach_payload(header, parts[2:])


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first message, as the server reads it."""

    nonce: bytes
    client: bytes
    generation: int


def session_id(parts: Sequence[memoryview]) -> bytes:
    """The session that a message claims to be of; raises WireError for what is no message."""
    if not 2 <= len(parts) <= 2 + MAX_BUFFERS:
        raise WireError(f"a message has 2 to {2 + MAX_BUFFERS} parts, this one {len(parts)}")
    if len(parts[1]) != ID_BYTES + MAC_BYTES:
        raise WireError("a message's second part is its signature")
    return bytes(parts[1][:ID_BYTES])


class Greeting:
    """A client's side of the handshake: send ``hello``, then give what comes to ``accept``."""

    def __init__(self, key: bytes, client: bytes, generation: int) -> None:
        self._key = key
        self._client = client
        self._generation = generation
        self._nonce = secrets.token_bytes(ID_BYTES)

    def hello(self) -> Parts:
        fields = {"nonce": self._nonce, "client": self._client}
        header = Header(self._generation, 0, HELLO, fields, ())
        return _signed(header, NO_SESSION, subkey(self._key, HELLO))

    def accept(self, parts: Sequence[memoryview]) -> tuple[Session, Mapping[str, Any]]:
        """The session and what the server says of itself; raises WireError."""
        header = _verified(parts, subkey(self._key, WELCOME, self._nonce))
        match header.fields:
            case {"session": bytes(id), "nonce": bytes(nonce), "about": dict(about)} if (
                header.verb == WELCOME
            ):
                key = _session_key(self._key, id, self._nonce, nonce)
                return Session(id, key, self._generation, server=False), about
            case _:
                raise WireError("a welcome without a session")


def read_hello(parts: Sequence[memoryview], key: bytes) -> Hello:
    """Raises WireError when it is none, or not signed with the run's key."""
    header = _verified(parts, subkey(key, HELLO))
    match header.fields:
        case {"nonce": bytes(nonce), "client": bytes(client)} if (
            header.verb == HELLO and len(nonce) == len(client) == ID_BYTES
        ):
            return Hello(nonce, client, header.generation)
        case _:
            raise WireError("a hello without a number and a client")


def welcome(
    hello: Hello, key: bytes, generation: int, about: Mapping[str, Any]
) -> tuple[Session, Parts]:
    """The server's side: a new session, and the message that opens it for the client."""
    id, nonce = secrets.token_bytes(ID_BYTES), secrets.token_bytes(ID_BYTES)
    fields = {"session": id, "nonce": nonce, "about": dict(about)}
    header = Header(generation, 0, WELCOME, fields, ())
    parts = _signed(header, NO_SESSION, subkey(key, WELCOME, hello.nonce))
    session_key = _session_key(key, id, hello.nonce, nonce)
    return Session(id, session_key, generation, server=True), parts


def refusal(problem: str, generation: int) -> Parts:
    """An answer to what cannot be trusted: short and without a signature."""
    header = Header(generation, 0, REFUSED, {"problem": problem[:200]}, ())
    return [encode_header(header), bytes(ID_BYTES + MAC_BYTES)]


def read_refusal(parts: Sequence[memoryview]) -> str | None:
    """The problem that a refusal names, or None for any other message."""
    if len(parts) != 2 or bytes(parts[1]) != bytes(ID_BYTES + MAC_BYTES):
        return None
    header = decode_header(parts[0])
    problem = header.fields.get("problem")
    return problem if header.verb == REFUSED and isinstance(problem, str) else None


def _session_key(key: bytes, id: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    return subkey(key, "session", id + client_nonce + server_nonce)


def _signed(header: Header, session: bytes, key: bytes) -> Parts:
    raw = encode_header(header)
    return [raw, session + _mac(raw, key), *payload(header.buffers)]


def _verified(parts: Sequence[memoryview], key: bytes) -> Header:
    """Reads a header only after its signature was found right."""
    session_id(parts)
    check_header_size(parts[0])  # who has no key is not to cost more than this
    if not hmac.compare_digest(parts[1][ID_BYTES:], _mac(parts[0], key)):
        raise WireError("not signed with this run's key")
    return decode_header(parts[0])


def _mac(raw: bytes | memoryview, key: bytes) -> bytes:
    digest = hashlib.blake2b(raw, key=key, digest_size=MAC_BYTES, person=b"heterps.frame")
    return digest.digest()
