"""How an actor gets the key of a run, so that nobody who listens to Ray's own connections, which
are as a rule not encrypted, learns it: by a connection of its own under CURVE, to a key pair that
the actor has made for it and of which Ray carries the public half.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq

from heterps.errors import ProcessError

_PATIENCE_MS = 10_000
_MAX_MESSAGE = 4096  # of the handshake, too


class Invitation(NamedTuple):
    address: str
    public: bytes


class Inviter:
    """The side that gets the secret."""

    def __init__(self, host: str) -> None:
        public, secret = zmq.curve_keypair()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.linger = 0
        self._socket.maxmsgsize = _MAX_MESSAGE
        self._socket.curve_server = True
        self._socket.curve_secretkey = secret
        port = self._socket.bind_to_random_port(f"tcp://{host}")
        self.invitation = Invitation(f"tcp://{host}:{port}", public)

    def secret(self) -> bytes:
        """Once it has come; after that nobody can hand over anything."""
        try:
            if not self._socket.poll(_PATIENCE_MS):
                raise TimeoutError("the run's key was not handed over in time")
            found = self._socket.recv()
            assert isinstance(found, bytes)
            return found
        finally:
            self._socket.close()
            self._context.term()


def hand_over(name: str, invitation: Invitation, secret: bytes) -> None:
    """To the keeper of the process of that name. Raises ProcessError."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PUSH)
    try:
        socket.linger = _PATIENCE_MS
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = invitation.public
        socket.sndtimeo = _PATIENCE_MS
        socket.immediate = True  # to wait for the connection, and not in vain
        socket.connect(invitation.address)
        socket.send(secret)
    except zmq.ZMQError:
        problem = f"was not started: {invitation.address} cannot be reached from here"
        raise ProcessError(name, problem, "lost") from None
    finally:
        socket.close()
        context.term()
