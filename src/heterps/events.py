"""What happens in a run, as lines of JSON that can be read while it goes on."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self


class EventLog:
    """Appends to a file; every event is on its way to the disk when ``write`` returns."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        torn = self.path.exists() and not _ends_with_a_line(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        if torn:  # by a writer that was killed
            self._file.write("\n")

    def write(self, kind: str, **fields: Any) -> None:
        """One line: ``time`` in seconds since 1970, ``kind`` and the fields. What JSON has no
        number for, such as NaN, becomes null.
        """
        event = {"time": round(time.time(), 3), "kind": kind, **fields}
        self._file.write(json.dumps(finite(event), allow_nan=False, default=str) + "\n")
        self._file.flush()

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
