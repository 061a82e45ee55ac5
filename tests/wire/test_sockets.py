import secrets
from contextlib import closing

import pytest
import zmq

from heterps.wire.frames import MAX_BUFFER_BYTES
from heterps.wire.sockets import Gatekeeper, calling_socket, listening_socket, receive, send

KEY = secrets.token_bytes(32)


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def exchange(context, tmp_path, transport, client_key, *, encrypt) -> bytes | None:
    """What a server receives from a client within a second."""
    address = f"ipc://{tmp_path}/s" if transport == "ipc" else "tcp://127.0.0.1:*"
    with (
        closing(Gatekeeper(context, KEY)) as gate,
        listening_socket(context, KEY, encrypt=encrypt) as server,
        calling_socket(context, client_key, encrypt=encrypt) as client,
    ):
        server.bind(address)
        client.connect(server.last_endpoint.decode())
        send(client, [b"hello"])
        for _ in range(100):
            if gate.socket.poll(5):
                gate.answer()
            if server.poll(5):
                return bytes(receive(server)[-1])
    return None


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("encrypt", [False, True])
def test_messages_arrive(context, tmp_path, transport, encrypt):
    assert exchange(context, tmp_path, transport, KEY, encrypt=encrypt) == b"hello"


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("encrypt", [False, True])
def test_strangers_are_not_heard(context, tmp_path, transport, encrypt):
    assert exchange(context, tmp_path, transport, bytes(32), encrypt=encrypt) is None


def test_sockets_without_any_credentials_are_not_heard(context):
    with (
        closing(Gatekeeper(context, KEY)) as gate,
        listening_socket(context, KEY, encrypt=False) as server,
        context.socket(zmq.DEALER) as client,
    ):
        server.bind("tcp://127.0.0.1:*")
        client.connect(server.last_endpoint.decode())
        client.linger = 0
        client.send(b"hello")
        assert not server.poll(300)
        assert not gate.socket.poll(0)


def test_receiving_does_not_wait(context):
    with listening_socket(context, KEY, encrypt=False) as socket:
        assert receive(socket) is None


@pytest.mark.slow
@pytest.mark.parametrize("encrypt", [False, True])
def test_a_frame_of_the_largest_size_arrives(context, encrypt):
    with (
        closing(Gatekeeper(context, KEY)) as gate,
        listening_socket(context, KEY, encrypt=encrypt) as server,
        calling_socket(context, KEY, encrypt=encrypt) as client,
    ):
        server.bind("tcp://127.0.0.1:*")
        client.connect(server.last_endpoint.decode())
        send(client, [bytes(MAX_BUFFER_BYTES)])
        assert gate.socket.poll(10_000)
        gate.answer()
        assert server.poll(20_000)
        assert len(receive(server)[-1]) == MAX_BUFFER_BYTES
