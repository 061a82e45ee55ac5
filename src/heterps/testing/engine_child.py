"""What the processes do that engines are checked with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from heterps.parent import handed_secret


def main(verb: str, *arguments: str) -> int:
    match verb, arguments:
        case "tell", (path, *_):
            about = {"arguments": arguments, "environment": dict(os.environ)}
            _write(path, {**about, "secret": handed_secret().hex()})
        case "exit", (code, text):
            sys.stderr.write(f"before\n{text}\n")
            return int(code)
        case "sleep", (path,):
            _sleep(path)
        case "ignore", (path,):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _sleep(path)
        case "end well", (path,):
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
            _sleep(path)
        case "have a child", (path,):
            command = [sys.executable, "-c", "import time; time.sleep(600)"]
            _sleep(path, subprocess.Popen(command).pid)
    return 0


def _sleep(path: str, *children: int) -> None:
    _write(path, [os.getpid(), *children])
    while True:
        time.sleep(60)


def _write(path: str, document: object) -> None:
    aside = Path(f"{path}.new")
    aside.write_text(json.dumps(document))
    aside.rename(path)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
