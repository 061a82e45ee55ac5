"""ZeroMQ sockets with the options that all of them share."""

from __future__ import annotations

import functools
from pathlib import Path

import zmq
from zmq.utils import z85

from heterps.wire.frames import MAX_BUFFER_BYTES
from heterps.wire.keys import curve_pair
from heterps.wire.sessions import Parts

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

SERVER, CLIENT = "server", "client"
# A unix socket's path is part of an address structure of fixed size.
MAX_IPC_PATH = 107
_ZAP = "inproc://zeromq.zap.01"
_DOMAIN = b"heterps"
_QUEUED_MESSAGES = 1000
_KERNEL_BUFFER_BYTES = 1 << 22


def listening_socket(context: Context, key: bytes, *, encrypt: bool) -> Socket:
    """A ROUTER, not yet bound. With ``encrypt`` there has to be a Gatekeeper in the context."""
    socket = _socket(context, zmq.ROUTER)
    if encrypt:
        socket.curve_server = True
        socket.curve_secretkey = curve_pair(key, SERVER).secret
        socket.zap_domain = _DOMAIN
    return socket


def calling_socket(context: Context, key: bytes, *, encrypt: bool) -> Socket:
    """A DEALER, not yet connected."""
    socket = _socket(context, zmq.DEALER)
    if encrypt:
        own = curve_pair(key, CLIENT)
        socket.curve_secretkey, socket.curve_publickey = own.secret, own.public
        socket.curve_serverkey = curve_pair(key, SERVER).public
    return socket


def send(socket: Socket, parts: Parts) -> None:
    """Never blocks: raises zmq.Again when the peer's queue is full. Large buffers are not copied,
    and must not change until they have gone out.
    """
    socket.send_multipart(parts, zmq.DONTWAIT, copy=False)


def receive(socket: Socket) -> list[memoryview] | None:
    """The parts of the next message, or None when there is none."""
    try:
        frames = socket.recv_multipart(zmq.DONTWAIT, copy=False)
    except zmq.Again:
        return None
    return [frame.buffer for frame in frames]


class Gatekeeper:
    """Admits to encrypted sockets those who hold the run's key (ZAP, RFC 27).

    One for a context; the owner polls ``socket`` and calls ``answer`` when it is readable.
    """

    def __init__(self, context: Context, key: bytes) -> None:
        self._expected = z85.decode(curve_pair(key, CLIENT).public)
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(_ZAP)

    def answer(self) -> None:
        request = self.socket.recv_multipart()
        version, number, *_ = request
        # version, number, domain, address, routing id, mechanism, credentials
        admitted = request[5:] == [b"CURVE", self._expected] and request[2] == _DOMAIN
        status, text = (b"200", b"OK") if admitted else (b"400", b"not this run's key")
        self.socket.send_multipart([version, number, status, text, b"", b""])

    def close(self) -> None:
        self.socket.close()


def _socket(context: Context, kind: int) -> Socket:
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = _QUEUED_MESSAGES
    socket.maxmsgsize = MAX_BUFFER_BYTES
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
