"""Ports for servers that have to be told theirs."""

from __future__ import annotations

import random
import socket

# Below those that the kernel gives to whoever asks for any.
_FIRST, _LAST = 20000, 32000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Distinct ones that nobody listens on now. Who is given one may still find it taken."""
    drawn = random.SystemRandom().sample(range(_FIRST, _LAST), 50 * count)
    found = (port for port in drawn if _is_free(host, port))
    return [next(found) for _ in range(count)]


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
