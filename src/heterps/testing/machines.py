"""Made-up machines that share nothing but the kernel: each has an address, a disk and a memory of
its own (network, mount, process and host name namespaces), and they are joined by a switch. What
is not on that disk, as this package, they find where we have it.

Making them needs the right to, `ip` of iproute2, and of util-linux `unshare`, `nsenter` and
`setpriv`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from heterps.testing.namespaces import NamespaceError, run_ip

_PATIENCE_S = 120.0
_DASHBOARD = 8265
_SCRIPT = """
set -e
mount -t tmpfs -o size=512m tmpfs {disk}
mount -t tmpfs -o size=512m tmpfs /dev/shm
printf '127.0.0.1 localhost\n{address} {name}\n' > {disk}/hosts
mount --bind {disk}/hosts /etc/hosts
hostname {name}
exec sleep infinity
"""


class Machine:
    """``disk`` is where every machine has a disk of its own, under the same path."""

    def __init__(self, name: str, address: str, disk: Path) -> None:
        self.name = name
        self.address = address
        self.disk = disk
        self._holder: subprocess.Popen[bytes] | None = None
        self._init = 0

    def boot(self) -> None:
        command = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        command += ["--mount-proc", "--propagation", "private"]
        script = _SCRIPT.format(disk=self.disk, name=self.name, address=self.address)
        inside = ["ip", "netns", "exec", self.name, *command, "sh", "-c", script]
        # It dies with us, however that is, and with it all that runs on the machine.
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *inside], stdin=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _PATIENCE_S
        while not self._is_up():
            if self._holder.poll() is not None or time.monotonic() > deadline:
                raise NamespaceError("unshare makes no machine here")
            time.sleep(0.02)

    def start(
        self, *command: str, environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """A process on this machine."""
        enter = ["nsenter", "-t", str(self._init), "-m", "-n", "-p", "-u", "--", *command]
        variables = {**os.environ, **(environment or {})}
        return subprocess.Popen(enter, env=variables, text=True, **options)

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """What a command on this machine says; AssertionError when it fails."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = self.start(*command, environment=environment, **pipes)
        said, _ = process.communicate(timeout=_PATIENCE_S)
        assert process.returncode == 0, f"{self.name}: {' '.join(command)}: {said}"
        return said

    def copy(self, source: Path, name: str) -> Path:
        """A file or folder of ours to this machine's disk."""
        there = self.disk / name
        self.run("cp", "-r", str(source), str(there))
        return there

    def ours(self, name: str) -> Path:
        """Where we find a file or folder of this machine's disk."""
        return Path(f"/proc/{self._init}/root") / self.disk.relative_to("/") / name

    def take(self, name: str, to: Path) -> None:
        """A file or folder of this machine's disk to us."""
        source = self.ours(name)
        if source.is_dir():
            shutil.copytree(source, to, dirs_exist_ok=True, ignore=_no_sockets)
        else:
            shutil.copy(source, to)

    def processes(self) -> dict[int, str]:
        """Ids, as we see them, and command lines of all processes of this machine."""
        own = Path(f"/proc/{self._init}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "ns/pid").readlink() == own:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    found[int(entry.name)] = b" ".join(words).decode(errors="replace")
        return found

    def kill(self, program: str) -> None:
        """SIGKILL to the processes of a program, by the name of its file."""
        pids = [pid for pid, line in self.processes().items() if _program(line) == program]
        assert pids, f"{self.name} runs no {program}"
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def shut_down(self) -> None:
        """At once, with everything that runs on it."""
        if self._init:
            with suppress(ProcessLookupError):
                os.kill(self._init, signal.SIGKILL)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
        self._init, self._holder = 0, None

    def _is_up(self) -> bool:
        assert self._holder is not None
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        with suppress(OSError):
            for pid in children.read_text().split():
                if b"infinity" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    self._init = int(pid)
                    return True
        return False


class Wires(NamedTuple):
    """Between machines: how long a packet is under way, and what each of them can send."""

    delay_ms: float
    mbps: float


class Machines:
    """So many of them. They reach us at ``here``. Raises NamespaceError when it is entered where
    none can be made."""

    def __init__(self, count: int, disk: Path, wires: Wires | None = None) -> None:
        own = f"heterps-{os.getpid()}"
        self._switch = f"{own}-switch"
        net = f"10.212.{os.getpid() % 250}"
        self.here = f"{net}.254"
        disk.mkdir(exist_ok=True)
        addresses = [f"{net}.{number + 1}" for number in range(count)]
        self.all = [Machine(f"{own}-{n}", address, disk) for n, address in enumerate(addresses)]
        self.wires = wires
        self._closing = ExitStack()

    def __getitem__(self, number: int) -> Machine:
        return self.all[number]

    def __enter__(self) -> Self:
        _sweep()
        try:
            self._plug_in()
            for machine in self.all:
                self._closing.callback(machine.shut_down)
                machine.boot()
        except NamespaceError:
            self._closing.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _plug_in(self) -> None:
        if self.wires is not None:
            self._plug_into_slow_switch(self.wires)
            return
        self._add(self._switch)
        run_ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        run_ip("-n", self._switch, "link", "set", "switch", "up")
        for number, machine in enumerate(self.all):
            self._add(machine.name)
            port = ["eth0", "netns", machine.name, "type", "veth", "peer", "name", f"port{number}"]
            run_ip("link", "add", *port, "netns", self._switch)
            run_ip("-n", self._switch, "link", "set", f"port{number}", "master", "switch", "up")
            address = f"{machine.address}/24"
            run_ip("-n", machine.name, "address", "add", address, "dev", "eth0")
            run_ip("-n", machine.name, "link", "set", "eth0", "up")
            # To nowhere; but who asks by which address it is seen from afar gets an answer.
            run_ip("-n", machine.name, "route", "add", "default", "dev", "eth0")
        ours = f"heterps{os.getpid()}"
        run_ip("link", "add", ours, "type", "veth", "peer", "name", "here", "netns", self._switch)
        run_ip("-n", self._switch, "link", "set", "here", "master", "switch", "up")
        run_ip("address", "add", f"{self.here}/24", "dev", ours)
        run_ip("link", "set", ours, "up")

    def _plug_into_slow_switch(self, wires: Wires) -> None:
        for machine in self.all:
            self._add(machine.name)
        ports = [f"{machine.name}={machine.address}" for machine in self.all]
        command = [sys.executable, "-m", "heterps.testing.slow_switch"]
        command += [f"{wires.delay_ms:g}", f"{wires.mbps:g}", *ports, f"={self.here}"]
        switch = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command], stdout=subprocess.PIPE, text=True
        )
        self._closing.callback(switch.wait)
        self._closing.callback(switch.kill)
        assert switch.stdout is not None
        self._closing.callback(switch.stdout.close)
        if switch.stdout.readline() != "ready\n":
            raise NamespaceError("there can be no tun devices here")
        for machine in self.all:
            # Under BBR messages stall for most of a second now and then on such wires.
            file = "/proc/sys/net/ipv4/tcp_congestion_control"
            usual = f"{{ echo cubic > {file} || echo reno > {file}; }} 2> /dev/null"
            inside = ["ip", "netns", "exec", machine.name, "sh", "-c", usual]
            subprocess.run(inside, check=False)

    def _add(self, name: str) -> None:
        run_ip("netns", "add", name)
        delete = ["ip", "netns", "delete", name]
        self._closing.callback(subprocess.run, delete, capture_output=True, check=False)
        run_ip("-n", name, "link", "set", "lo", "up")


class RayMachines(Machines):
    """With a Ray node on each; the first is the head. ``resources`` are those of each machine."""

    def __init__(
        self, disk: Path, resources: Sequence[Mapping[str, float]], wires: Wires | None = None
    ) -> None:
        super().__init__(len(resources), disk, wires)
        self._resources = resources
        self.dashboard = f"http://{self.all[0].address}:{_DASHBOARD}"
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(disk / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "120",
            "RAY_health_check_initial_delay_ms": "2000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "3000",
            "RAY_health_check_failure_threshold": "3",
            "RAY_prestart_worker_first_driver": "0",
            "RAY_worker_niceness": "0",
            "RAY_kill_child_processes_on_worker_exit": "0",
            "RAY_ADDRESS": f"{self.all[0].address}:6379",
        }

    def start_ray(self) -> None:
        """On all machines."""
        token = os.urandom(32).hex()
        for number, machine in enumerate(self.all):
            machine.run("sh", "-c", f"umask 077; printf %s {token} > {machine.disk}/token")
            self.start_node(number)

    def start_node(self, number: int) -> None:
        machine, own = self.all[number], dict(self._resources[number])
        command = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        where = ["--head", "--port=6379", "--include-dashboard=true"]
        where += [f"--dashboard-host={machine.address}", f"--dashboard-port={_DASHBOARD}"]
        command += where if number == 0 else [f"--address={self.environment['RAY_ADDRESS']}"]
        command += [f"--node-ip-address={machine.address}", f"--num-cpus={own.pop('CPU', 1):g}"]
        counts = ", ".join(f'"{name}": {count:g}' for name, count in own.items())
        command += [f"--resources={{{counts}}}", f"--temp-dir={machine.disk}/ray"]
        command += ["--object-store-memory=100000000", "--disable-usage-stats"]
        machine.run(*command, environment=self.environment)


def _sweep() -> None:
    """Removes the networks of those who were killed before they could."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        found = re.match(r"heterps-(\d+)-\S+", line)
        if found and not Path(f"/proc/{found[1]}").exists():
            delete = ["ip", "netns", "delete", found[0]]
            subprocess.run(delete, capture_output=True, check=False)


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_socket()]


def _program(line: str) -> str:
    return Path(line.split(" ")[0]).name if line else ""
