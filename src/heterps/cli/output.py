"""Standard output that goes away, as in ``heterps train job.yaml | head``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast

BROKEN_PIPE = 141  # as a shell says it of what SIGPIPE has ended


@contextmanager
def enduring_output() -> Iterator[None]:
    """Meanwhile what cannot be written is dropped, from then on without another try."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Enduring(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = before


def flush_output() -> str | None:
    """Why what was printed cannot be written, and is dropped. Raises BrokenPipeError."""
    try:
        sys.stdout.flush()
    except OSError as error:
        drop(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        return f"cannot be written ({error.strerror})"
    return None


def drop(stream: TextIO) -> None:
    """What is in its buffer, and all that comes, goes nowhere."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


class _Enduring:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            drop(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            drop(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
