"""The command line as a person runs it: in a shell, in a pipe, on a terminal."""

from __future__ import annotations

import codecs
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output, a JSON document a line."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines()]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def shell(*args: str) -> Result:
    """The command in a process of its own, writing into pipes."""
    command = [sys.executable, "-m", "heterps", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def on_terminal(*args: str, until: str, then: Callable[[subprocess.Popen[str]], None]) -> Result:
    """Runs with standard error on a terminal, and does something when a text appears there."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "heterps", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, text=True) as process:
        os.close(follower)
        shown, done = "", False
        decoder = codecs.getincrementaldecoder("utf-8")()  # a piece may end within a character
        while True:
            try:
                shown += decoder.decode(os.read(leader, 4096))
            except OSError:  # the other end is closed
                break
            if until in shown and not done:
                done = True
                then(process)
        assert process.stdout is not None
        out = process.stdout.read()
        code = process.wait()
    os.close(leader)
    return Result(code, out, shown)
