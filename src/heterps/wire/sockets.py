"""ZeroMQ sockets with the options that all of them share."""

from __future__ import annotations

import functools
import hmac
import secrets
from errno import EADDRINUSE
from pathlib import Path

import zmq
from zmq.utils import z85

from heterps.wire.frames import MAX_BUFFER_BYTES
from heterps.wire.keys import curve_pair, subkey
from heterps.wire.sessions import Parts

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

SERVER, CLIENT = "server", "client"
# A unix socket's path is part of an address structure of fixed size.
MAX_IPC_PATH = 107
_ZAP = "inproc://zeromq.zap.01"
_DOMAIN = b"heterps"
_QUEUED_MESSAGES = 1000
_CURVE_BYTES = 64  # more than encryption adds to a frame
_KERNEL_BUFFER_BYTES = 1 << 22


def listening_socket(context: Context, key: bytes, *, encrypt: bool) -> Socket:
    """A ROUTER, not yet bound. There has to be a Gatekeeper in the context: it admits those who
    hold the run's key, so that nobody else's messages are queued.

    Until it has spoken a stranger can hold the memory of one message for each connection, for as
    long as a handshake may take; that is long, since a server that is at work answers late.
    """
    socket = _socket(context, zmq.ROUTER, encrypt=encrypt)
    socket.zap_domain = _DOMAIN
    if encrypt:
        socket.curve_server = True
        socket.curve_secretkey = curve_pair(key, SERVER).secret
    else:
        socket.plain_server = True
    return socket


def bind_problem(address: str, error: zmq.ZMQError) -> str:
    """Why there is nothing to listen on, and what to do where we know it."""
    fix = "; choose another port, or * for any that is free" if error.errno == EADDRINUSE else ""
    return f"cannot listen on {address}: {zmq.strerror(error.errno or 0)}{fix}"


def calling_socket(context: Context, key: bytes, *, encrypt: bool) -> Socket:
    """A DEALER, not yet connected."""
    socket = _socket(context, zmq.DEALER, encrypt=encrypt)
    if encrypt:
        own = curve_pair(key, CLIENT)
        socket.curve_secretkey, socket.curve_publickey = own.secret, own.public
        socket.curve_serverkey = curve_pair(key, SERVER).public
    else:
        socket.plain_username = secrets.token_hex(16).encode()
        socket.plain_password = _password(key, socket.plain_username)
    return socket


def send(socket: Socket, parts: Parts) -> None:
    """Never blocks: raises zmq.Again when the peer's queue is full. Large buffers are not copied,
    and must not change until they have gone out.
    """
    socket.send_multipart(parts, zmq.DONTWAIT, copy=False)


def receive(socket: Socket) -> list[memoryview] | None:
    """The parts of the next message, or None when there is none."""
    # Asking is far cheaper than the exception would be.
    events = socket.get(zmq.EVENTS)
    assert isinstance(events, int)
    if not events & zmq.POLLIN:
        return None
    try:
        frames = socket.recv_multipart(zmq.DONTWAIT, copy=False)
    except zmq.Again:
        return None
    return [frame.buffer for frame in frames]


class Gatekeeper:
    """Admits those who hold the run's key (ZAP, RFC 27), before a message of theirs is queued.

    By their CURVE key, or with PLAIN by a password for their random name, which tells nothing of
    the key. Whoever copies that from the line still cannot sign a message.

    One for a context; the owner polls ``socket`` and calls ``answer`` when it is readable.
    """

    def __init__(self, context: Context, key: bytes) -> None:
        self._key = key
        self._curve = z85.decode(curve_pair(key, CLIENT).public)
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(_ZAP)

    def answer(self) -> None:
        request = self.socket.recv_multipart()
        version, number, *_ = request
        # version, number, domain, address, routing id, mechanism, credentials
        admitted = request[2] == _DOMAIN and self._admits(request[5], request[6:])
        status, text = (b"200", b"OK") if admitted else (b"400", b"not this run's key")
        self.socket.send_multipart([version, number, status, text, b"", b""])

    def _admits(self, mechanism: bytes, credentials: list[bytes]) -> bool:
        match mechanism, credentials:
            case b"CURVE", [public]:
                return public == self._curve
            case b"PLAIN", [name, password]:
                return hmac.compare_digest(password, _password(self._key, name))
        return False

    def close(self) -> None:
        self.socket.close()


def _password(key: bytes, name: bytes) -> bytes:
    return subkey(key, "connect", name).hex().encode()


def _socket(context: Context, kind: int, *, encrypt: bool) -> Socket:
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = _QUEUED_MESSAGES
    socket.maxmsgsize = MAX_BUFFER_BYTES + (_CURVE_BYTES if encrypt else 0)
    if _allows_large_buffers():
        socket.sndbuf = socket.rcvbuf = _KERNEL_BUFFER_BYTES
    # On tcp a silent peer is noticed after two seconds; a killed one at once.
    socket.heartbeat_ivl, socket.heartbeat_timeout = 500, 1500
    socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 1000
    socket.handshake_ivl = 5000
    return socket


@functools.cache
def _allows_large_buffers() -> bool:
    """Large fixed buffers move a batch of rows in fewer turns; where the kernel caps them, its own
    tuning does better.
    """
    limits = [Path(f"/proc/sys/net/core/{name}_max") for name in ("rmem", "wmem")]
    try:
        return all(int(limit.read_text()) >= _KERNEL_BUFFER_BYTES for limit in limits)
    except (OSError, ValueError):
        return False
