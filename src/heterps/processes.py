"""Child processes that leave nothing behind, however their parent ends.

``python -m heterps.processes --parent PID [--secret N] MODULE ARGUMENT…`` runs a module as a script
in a process that is told (SIGTERM) when its parent has gone: by the kernel, and by the end of its
standard input. Whoever does not end then is ended. A secret is the first N bytes of that input:
neither the command line nor the environment, which others may read, nor a file holds it. The other
end of all this is `heterps.parent`.
"""

from __future__ import annotations

import argparse
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from heterps import parent

_LAST_PATIENCE_S = 10.0
_TAIL_BYTES = 1 << 14


class Child:
    """A process that was started here, in a session of its own: a Ctrl-C reaches its parent alone,
    which ends it in order, and what it has started itself ends with it.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        secret: bytes = b"",
    ) -> None:
        """Starts it; ``environment`` is added to this process's own, ``log`` is appended to, and
        ``secret`` is what `handed_secret` gives in it."""
        command = [sys.executable, "-m", "heterps.processes", "--parent", str(os.getpid())]
        # The kernel's word on a dead parent is about the thread that started us.
        if threading.current_thread() is not threading.main_thread():
            command += ["--from-thread"]
        if secret:
            command += ["--secret", str(len(secret))]
        self.log = log
        self._code: int | None = None
        self._looking = threading.RLock()  # its end is taken note of once, whoever sees it first
        with log.open("ab") as output:
            self._log_start = output.tell()
            # Our end of the pipe closes when this process dies, however it dies.
            self._process = subprocess.Popen(
                [*command, module, *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._hand_over(secret)

    def _hand_over(self, secret: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, which is seen soon
            self._process.stdin.write(secret)
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with self._looking:
            if self._code is None and os.waitid(os.P_PID, self.pid, look) is not None:
                # Before its number is free for others, so that it is its own group that ends.
                os.killpg(self.pid, signal.SIGKILL)
                self._code = self._process.wait()
                self._close_input()
            return self._code

    def terminate(self) -> None:
        """By SIGTERM, and shows first that it comes from here: one from elsewhere is not obeyed at
        once."""
        with self._looking:
            if self.poll() is None:
                self._close_input()
                # Popen would look first, and free the number of one that has just ended by that.
                os.kill(self.pid, signal.SIGTERM)

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a secret that nobody has waited for
            self._process.stdin.close()

    def kill(self) -> None:
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None when it still runs then. Takes no time of the processor."""
        with self._looking:
            if self.poll() is not None:
                return self._code
            end = os.pidfd_open(self.pid)  # nobody has freed the number: that takes the lock
        try:
            look = select.poll()
            look.register(end, select.POLLIN)
            look.poll(1000 * max(0.0, timeout_s))
        finally:
            os.close(end)
        return self.poll()

    def last_words(self, lines: int = 1) -> str:
        """The end of what it wrote, in one line."""
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
        said = [line.strip() for line in text.splitlines() if line.strip()]
        return " / ".join(said[-lines:]) or "no reason given"


def stop_all(children: Sequence[Child], grace_s: float) -> None:
    """All at once: SIGTERM, and SIGKILL for those that still run after the grace."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + grace_s
    for child in children:
        if child.wait(deadline - time.monotonic()) is None:
            child.kill()
    for child in children:
        child.wait(_LAST_PATIENCE_S)


def end_held(folder: Path) -> None:
    """Kills what is held by SIGSTOP, names this folder on its command line, and has lost the
    process that started it: it cannot hear of that itself."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_lost(entry, os.fsencode(folder)):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(entry.name), signal.SIGKILL)


def _is_lost(process: Path, folder: bytes) -> bool:
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if folder not in command or b"heterps.processes" not in command or b"--parent" not in command:
        return False
    parent = command[command.index(b"--parent") + 1].decode()
    return is_stopped(int(process.name)) and not Path(f"/proc/{parent}").exists()


def is_stopped(pid: int) -> bool:
    """Whether a process is held by SIGSTOP or a debugger."""
    return _state(Path(f"/proc/{pid}")) in ("T", "t")


def wants_to_run(pid: int) -> bool:
    """Whether a thread of a process has or waits for a processor, or waits for the disk: one that
    is late, then, and not one that hangs."""
    try:
        states = [_state(task) for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return any(state in ("R", "D") for state in states)


def _state(process: Path) -> str:
    """Of a folder in /proc; nothing once it has gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="heterps.processes", description=__doc__)
    parser.add_argument("--parent", type=int, required=True, help="end when this has ended")
    parser.add_argument("--from-thread", action="store_true", help="which may end before that")
    parser.add_argument("--secret", type=int, default=0, help="bytes of a secret to read first")
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    parent.read_secret(options.secret)
    parent.end_with(options.parent, by_kernel=not options.from_thread)
    sys.argv = [options.module, *options.arguments]
    runpy.run_module(options.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
