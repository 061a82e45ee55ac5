"""Processes of a run on two made-up hosts, with a link between them that can be cut.

The hosts are network namespaces of this machine, joined by a pair of virtual interfaces. Making
them needs the right to, and `ip` of iproute2.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from heterps.runtime.engines.base import ProcessSpec
from heterps.testing.forking import ForkedHandle, ForkEngine

_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")


class NamespaceError(Exception):
    """Why there can be no namespaces here."""


class TwoHosts:
    """Each has an address that the other reaches over the link. Raises NamespaceError when it is
    entered where namespaces cannot be made."""

    def __init__(self) -> None:
        self._names = [f"heterps-{os.getpid()}-{host}" for host in (0, 1)]
        self.addresses = ("10.211.7.1", "10.211.7.2")

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                run_ip("netns", "add", name)
                run_ip("-n", name, "link", "set", "lo", "up")
            one, other = self._names
            ends = ["veth0", "netns", one, "type", "veth", "peer", "name", "veth0", "netns", other]
            run_ip("link", "add", *ends)
            for name, address in zip(self._names, self.addresses, strict=True):
                run_ip("-n", name, "address", "add", f"{address}/24", "dev", "veth0")
                run_ip("-n", name, "link", "set", "veth0", "up")
        except NamespaceError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def cut(self) -> None:
        """Nobody is told: what is sent is lost."""
        run_ip("-n", self._names[0], "link", "set", "veth0", "down")

    def mend(self) -> None:
        run_ip("-n", self._names[0], "link", "set", "veth0", "up")

    def engine(self, host_of: Mapping[str, int]) -> Callable[[Path], ForkEngine]:
        """Of processes that run on these hosts, by their names; others stay on this machine."""
        return lambda folder: _Engine(folder, self, host_of)

    def placed(self, spec: ProcessSpec, host: int) -> ProcessSpec:
        """A worker that is reached at the host's address."""
        address = self.addresses[host]
        own = {"--listen": f"tcp://{address}:*", "--host": address}
        return replace(spec, arguments=_with(spec.arguments, own))

    def enter(self, host: int) -> None:
        """Takes the calling thread, and those that it starts, to a host."""
        enter_namespace(self._names[host])


class _Engine(ForkEngine):
    def __init__(self, folder: Path, hosts: TwoHosts, host_of: Mapping[str, int]) -> None:
        super().__init__(folder)
        self._hosts = hosts
        self._host_of = host_of

    def start(self, spec: ProcessSpec) -> ForkedHandle:
        host = self._host_of.get(spec.name)
        if host is None:
            return super().start(spec)
        return self.start_after(self._hosts.placed(spec, host), self._hosts.enter, host)


def _with(arguments: Sequence[str], own: Mapping[str, str]) -> tuple[str, ...]:
    """Options of a command line, some of them replaced or added."""
    kept, given = list(arguments), dict(own)
    for at, name in enumerate(arguments[:-1]):
        if name in given:
            kept[at + 1] = given.pop(name)
    return (*kept, *(part for pair in given.items() for part in pair))


def enter_namespace(where: str | int) -> None:
    """Takes the calling thread to a network namespace, by its name or an open descriptor."""
    descriptor = os.open(_NAMESPACES / where, os.O_RDONLY) if isinstance(where, str) else where
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        if isinstance(where, str):
            os.close(descriptor)


def run_ip(*arguments: str) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NamespaceError("there is no command 'ip': install iproute2") from None
    if done.returncode:
        raise NamespaceError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
