"""Programs that a benchmark runs to their end, and that end with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence

LIMIT_S = 900
_PATIENCE_S = 20.0  # to end in order, with the processes of its own


def output_of(command: Sequence[str]) -> str:
    """What it prints. Raises RuntimeError with its errors when it fails or takes too long."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        said, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took more than {LIMIT_S} s") from None
    finally:
        _end(process)
    if process.returncode:
        raise RuntimeError(errors.strip() or said.strip() or f"exit code {process.returncode}")
    return said


def end_in_order() -> None:
    """From now on SIGTERM ends this process as an exception does: what it runs is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
