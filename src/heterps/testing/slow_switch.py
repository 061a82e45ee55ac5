"""A switch between network namespaces whose every port has a rate, and whose wires have a length.

    python -m heterps.testing.slow_switch DELAY_MS MBPS NAMESPACE=ADDRESS ...

It gives each namespace an interface ``eth0`` with that address, says so with a line, and carries
packets between them until it is ended. For kernels whose `tc` cannot delay (no netem): packets come
out of and go into tun devices here, up to 64 KiB at a time, as the kernel would give them to a
network card that cuts them itself. An empty name is the namespace that it is started in.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from heterps.testing.namespaces import enter_namespace, run_ip

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_OFFLOADS = 0x01 | 0x02  # checksums, and cutting of long TCP segments (IPv4)
_HEADER = 10  # of virtio, before each packet
_DESTINATION = slice(_HEADER + 16, _HEADER + 20)
_LARGEST = 1 << 17
_QUEUE_S = 0.2  # of data at a port's rate; what comes on top is lost


class Port:
    """What one host sends: it leaves at the port's rate, and arrives ``delay_s`` after that."""

    def __init__(self, device: int, bytes_per_s: float, delay_s: float) -> None:
        self.device = device
        self._bytes_per_s = bytes_per_s
        self._delay_s = delay_s
        self._free_at = 0.0
        self._under_way: deque[tuple[float, bytes]] = deque()

    def take(self, packet: bytes, now: float) -> None:
        begins = max(now, self._free_at)
        if begins - now > _QUEUE_S:
            return
        self._free_at = begins + (len(packet) - _HEADER) / self._bytes_per_s
        self._under_way.append((self._free_at + self._delay_s, packet))

    def next_at(self) -> float | None:
        return self._under_way[0][0] if self._under_way else None

    def due(self, now: float) -> list[bytes]:
        found = []
        while self._under_way and self._under_way[0][0] <= now:
            found.append(self._under_way.popleft()[1])
        return found


def carry(ports: Mapping[bytes, Port]) -> None:
    """Between hosts, by their addresses, for ever."""
    by_device = {port.device: port for port in ports.values()}
    while True:
        now = time.monotonic()
        for port in by_device.values():
            for packet in port.due(now):
                to = ports.get(packet[_DESTINATION])
                with suppress(OSError):  # of a host that is gone: it is lost
                    if to is not None:
                        os.write(to.device, packet)
        times = [at for port in by_device.values() if (at := port.next_at()) is not None]
        wait_s = max(0.0, min(times) - time.monotonic()) if times else 1.0
        ready, _, _ = select.select(list(by_device), (), (), wait_s)  # counts microseconds
        for device in ready:
            by_device[device].take(os.read(device, _LARGEST), time.monotonic())


def hurry() -> None:
    """A wire does not wait for those who compute: their cores are others' than its own."""
    with suppress(OSError):  # without the right to, it goes on as it is
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def plug_in(namespace: str, address: str) -> int:
    """An interface there; its other end is the descriptor."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    if namespace:
        enter_namespace(namespace)
    try:
        device = os.open("/dev/net/tun", os.O_RDWR)
        flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
        name = b"eth0" if namespace else f"heterps{os.getpid()}".encode()[:15]
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name, flags))
        fcntl.ioctl(device, _TUNSETOFFLOAD, _OFFLOADS)
        run_ip("address", "add", f"{address}/24", "dev", name.decode())
        run_ip("link", "set", name.decode(), "up")
        # To nowhere; but who asks by which address it is seen from afar gets an answer.
        if namespace:
            run_ip("route", "add", "default", "dev", "eth0")
    finally:
        enter_namespace(home)
        os.close(home)
    return device


def main(arguments: Sequence[str]) -> None:
    delay_s, bytes_per_s = float(arguments[0]) / 1e3, float(arguments[1]) * 1e6 / 8
    ports = {}
    for entry in arguments[2:]:
        namespace, _, address = entry.partition("=")
        device = plug_in(namespace, address)
        ports[socket.inet_aton(address)] = Port(device, bytes_per_s, delay_s)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    hurry()
    carry(ports)


if __name__ == "__main__":
    main(sys.argv[1:])
