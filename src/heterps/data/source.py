"""Files by path, pattern or URL, through fsspec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import fsspec
import fsspec.core

from heterps.errors import InputError

SUFFIXES = (".parquet", ".tsv", ".txt", ".tsv.gz", ".txt.gz")
_MAGIC = ("*", "?", "[")


@dataclass(frozen=True)
class SourceFile:
    """A file of a data set; ``path`` is what its file system calls it."""

    file_system: Any
    path: str
    size_bytes: int

    @property
    def url(self) -> str:
        """The path of a local file, the whole URL of any other."""
        return self.path if self.is_local else str(self.file_system.unstrip_protocol(self.path))

    @property
    def is_local(self) -> bool:
        return "file" in _protocols(self.file_system)

    @property
    def suffix(self) -> str:
        """The ending that tells the format, or nothing if it tells none."""
        known = (suffix for suffix in SUFFIXES if self.path.endswith(suffix))
        return max(known, key=len, default="")

    def open(self) -> IO[bytes]:
        """Raises InputError."""
        try:
            opened: IO[bytes] = self.file_system.open(self.path, "rb")
        except OSError as error:
            raise InputError(self.url, f"cannot be read ({reason(error)})") from None
        return opened


def find_files(
    patterns: Sequence[str], field: str = "data.train", base: str = ""
) -> list[SourceFile]:
    """The files that paths, patterns, folders or URLs name: sorted, each once.

    Relative paths start from ``base``, the folder of the job file. Raises InputError with ``field``
    where a pattern matches nothing, or its file system is not known.
    """
    found: dict[str, SourceFile] = {}
    for pattern in patterns:
        for file in _matches(pattern, field, base):
            found[file.url] = file
    return [found[url] for url in sorted(found)]


def _matches(pattern: str, field: str, base: str) -> list[SourceFile]:
    relative = "://" not in pattern and not pattern.startswith("/")
    location = f"{base.rstrip('/')}/{pattern}" if base and relative else pattern
    try:
        file_system, path = fsspec.core.url_to_fs(location)
        files = _listed(file_system, path)
    except (ValueError, ImportError) as error:  # an unknown protocol, or one without its package
        raise InputError(field, f"'{pattern}' cannot be opened ({reason(error)})") from None
    except OSError as error:
        raise InputError(field, f"'{pattern}' cannot be read ({reason(error)})") from None
    if not files:
        raise InputError(field, f"nothing matches '{pattern}': {_advice(file_system, path)}")
    return files


def _listed(file_system: Any, path: str) -> list[SourceFile]:
    if any(sign in path for sign in _MAGIC) and not file_system.exists(path):
        entries = file_system.glob(path, detail=True).values()
    elif file_system.isdir(path):
        entries = [entry for entry in file_system.ls(path, detail=True) if _visible(entry["name"])]
    elif file_system.exists(path):
        entries = [file_system.info(path)]
    else:
        entries = []
    return [
        SourceFile(file_system, entry["name"], int(entry["size"] or 0))
        for entry in entries
        if entry["type"] != "directory"
    ]


def _visible(path: str) -> bool:
    """Whether a file in a folder is data: by its ending, and neither hidden nor half written."""
    return path.endswith(SUFFIXES) and path.rpartition("/")[2][0] not in "._"


def _advice(file_system: Any, path: str) -> str:
    if file_system.isdir(path):
        return f"the folder holds no {', '.join(SUFFIXES)}"
    return "check the path, and that relative ones start from the job file"


def _protocols(file_system: Any) -> tuple[str, ...]:
    named = file_system.protocol
    return (named,) if isinstance(named, str) else tuple(named)


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
