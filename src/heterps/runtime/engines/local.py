"""Processes of a run as children of this one, on this host.

```text
RUN/logs/NAME.log    what the process NAME wrote, over all its starts
```
"""

from __future__ import annotations

from pathlib import Path

from heterps.errors import ProcessError
from heterps.processes import Child, end_held, is_stopped, stop_all, wants_to_run
from heterps.runtime.engines.base import GRACE_S, Engine, Handle, ProcessSpec
from heterps.wire.segments import remove_segments_of


class LocalHandle(Handle):
    def __init__(self, spec: ProcessSpec, child: Child, folder: Path) -> None:
        super().__init__(spec)
        self.child = child
        self._folder = folder
        self._swept = False

    @property
    def pid(self) -> int:
        return self.child.pid

    def read(self, name: str) -> bytes | None:
        return read_file(self._folder / name)

    def poll(self) -> int | None:
        code = self.child.poll()
        if code is not None and not self._swept:
            self._swept = True
            remove_segments_of(self.pid)
        return code

    def stop(self, grace_s: float = GRACE_S) -> int:
        stop_all([self.child], grace_s)
        code = self.poll()
        if code is None:
            raise ProcessError(self.spec.name, "does not end, not even by SIGKILL")
        return code

    def stopped(self) -> bool:
        return is_stopped(self.pid)

    def wants_to_run(self) -> bool:
        return wants_to_run(self.pid)

    def last_words(self, lines: int = 3) -> str:
        return self.child.last_words(lines)


class LocalEngine(Engine):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        end_held(folder)
        self._handles: dict[str, LocalHandle] = {}
        self._closed = False

    def start(self, spec: ProcessSpec) -> LocalHandle:
        log = self.admitted(spec, self._handles.get(spec.name), closed=self._closed)
        try:
            child = Child(spec.module, spec.arguments, log, spec.variables(), spec.secret)
        except OSError as error:
            raise ProcessError(spec.name, f"was not started: {error.strerror}") from None
        self._handles[spec.name] = handle = LocalHandle(spec, child, self.folder)
        return handle

    def close(self, grace_s: float = GRACE_S) -> None:
        self._closed = True
        stop_all([handle.child for handle in self._handles.values()], grace_s)
        for handle in self._handles.values():
            handle.poll()


def read_file(path: Path) -> bytes | None:
    """None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
