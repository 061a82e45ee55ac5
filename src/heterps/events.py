"""What happens in a run, as lines of JSON that can be read while it goes on."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

_MOST_WAITING = 10_000


class EventLog:
    """Appends to a file; every event is on its way to the disk when ``write`` returns. Without room
    on the disk events wait in memory for it, the last ``_MOST_WAITING`` of them."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._torn = self.path.exists() and not _ends_with_a_line(self.path)  # by a killed writer
        self._file = self.path.open("ab", buffering=0)
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)

    def write(self, kind: str, **fields: Any) -> None:
        """One line: ``time`` in seconds since 1970, ``kind`` and the fields. What JSON has no
        number for, such as NaN, becomes null.
        """
        event = {"time": round(time.time(), 3), "kind": kind, **fields}
        line = json.dumps(finite(event), allow_nan=False, default=str) + "\n"
        self._waiting.append(line.encode())
        while self._waiting and self._append(self._waiting[0]):
            self._waiting.popleft()

    def _append(self, line: bytes) -> bool:
        """Whether there was room for it."""
        line = b"\n" + line if self._torn else line
        try:
            written = self._file.write(line)
        except OSError:
            return False
        self._torn = written != len(line)
        return not self._torn

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_events(path: Path | str) -> Iterator[dict[str, Any]]:
    """The events so far; a line that is torn is left out, and a file that is not there is empty."""
    try:
        file = Path(path).open(encoding="utf-8", errors="replace")  # noqa: SIM115
    except OSError:
        return
    with file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def finite(value: Any) -> Any:
    """The same with null in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"
