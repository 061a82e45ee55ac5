"""What a run may have left behind: processes, sockets, shared memory."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from heterps.wire.segments import PREFIX, segment_folder

PATIENCE_S = 60.0


def processes_of(run: Path) -> list[int]:
    """Those whose command line names the run folder, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(run) in command:
                found.append(int(entry.name))
    return sorted(found)


def await_no_processes(
    run: Path, patience_s: float = PATIENCE_S, but: Collection[int] = ()
) -> list[int]:
    """Those that are still there after so long, but for these."""
    deadline = time.monotonic() + patience_s
    while (left := sorted({*processes_of(run)} - {*but})) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def sockets_below(*folders: Path) -> list[Path]:
    files = (path for folder in folders for path in folder.rglob("*"))
    return [path for path in files if stat.S_ISSOCK(path.lstat().st_mode)]


def segments_of(pids: Iterable[int]) -> list[Path]:
    """Named shared memory that these processes made."""
    return [path for pid in pids for path in segment_folder().glob(f"{PREFIX}{pid}-*")]
