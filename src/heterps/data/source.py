"""Files by path, pattern or URL, through fsspec."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from urllib.parse import urlsplit

from heterps.data.remote import RemoteStream
from heterps.errors import InputError
from heterps.job.data import DataSpec
from heterps.storage import listing
from heterps.storage.access import Storage, kind_of
from heterps.storage.patience import reason
from heterps.storage.range_cache import RangeCache
from heterps.storage.urls import BY_HOST, check_path

_T = TypeVar("_T")
SUFFIXES = (".parquet", ".tsv", ".txt", ".tsv.gz", ".txt.gz")
_GIB = 1 << 30
# What file systems call the mark of a content: HDFS, WebHDFS, S3, local disks. The first that there
# is counts: a listing of S3 tells other fractions of a second than a question for one file.
_VERSIONS = ("modification_time", "modificationTime", "ETag", "LastModified", "mtime")


@dataclass(frozen=True)
class SourceFile:
    """A file of a data set; ``path`` is what its file system calls it, ``url`` what people do: the
    path of a local file, the whole URL of any other. ``version`` is its size and a mark that
    changes with the content, the same from a listing as from a question for this file.
    """

    file_system: Any
    path: str
    size_bytes: int
    url: str
    version: str = ""
    storage: Storage = field(default_factory=Storage)

    @property
    def is_local(self) -> bool:
        return is_local(self.file_system)

    @property
    def suffix(self) -> str:
        """The ending that tells the format, or nothing if it tells none."""
        known = (suffix for suffix in SUFFIXES if self.path.endswith(suffix))
        return max(known, key=len, default="")

    def open(self) -> IO[bytes]:
        """Raises InputError, and so does reading from it."""
        if not self.is_local:
            return cast(IO[bytes], RemoteStream(self.read_range, self.size_bytes))
        try:
            opened: IO[bytes] = self.file_system.open(self.path, "rb")
        except OSError as error:
            raise InputError(self.url, f"cannot be read ({reason(error)})") from None
        return opened

    def read_range(self, start: int, stop: int) -> bytes:
        """Bytes ``start`` up to ``stop``: from the cache, or with patience from where they are.
        Raises InputError.
        """
        cache = self.storage.cache
        found = cache.get(self.url, self.version, start, stop) if cache else None
        if found is not None:
            return found
        patience = self.storage.patience.for_bytes(stop - start)
        try:
            found = patience.persist(lambda: self._fetch(start, stop), self.url)
        except OSError as error:
            raise InputError(self.url, f"cannot be read ({reason(error)})") from None
        if len(found) != stop - start:
            problem = f"ends before byte {stop}, expected {self.size_bytes}"
            raise InputError(self.url, f"{problem}: has it changed?")
        if cache:
            cache.put(self.url, self.version, start, found)
        return found

    def _fetch(self, start: int, stop: int) -> bytes:
        try:
            return bytes(self.file_system.cat_file(self.path, start=start, end=stop))
        except BaseException:  # what lies past the end is an error of any kind, of HDFS a panic
            if self._has_shrunk():
                return b""
            raise

    def _has_shrunk(self) -> bool:
        with contextlib.suppress(Exception):
            self.file_system.invalidate_cache()
            return int(self.file_system.info(self.path)["size"]) < self.size_bytes
        return False


def storage_of(spec: DataSpec, base: str = "") -> Storage:
    """How a job's data are reached. Raises InputError for a cache that cannot be."""
    cache = None
    if spec.cache is not None:
        cache = RangeCache(Path(base, spec.cache.path), int(spec.cache.gib * _GIB))
    return Storage(spec.storage, cache)


def find_files(
    patterns: Sequence[str],
    field: str = "data.train",
    base: str = "",
    storage: Storage | None = None,
) -> list[SourceFile]:
    """The files that paths, patterns, folders or URLs name: sorted, each once.

    Relative paths start from ``base``, such as the folder of the job file; without one, from the
    working folder. Raises InputError with ``field`` where a pattern matches nothing, or its file
    system is not known.
    """
    found: dict[str, SourceFile] = {}
    for pattern in patterns:
        for file in _matches(pattern, field, base, storage or Storage()):
            found[file.url] = file
    return [found[url] for url in sorted(found)]


def names_in(
    folder: str, field: str = "data.train", base: str = "", storage: Storage | None = None
) -> list[str]:
    """The names of all files in a folder. Raises InputError with ``field``."""
    return _asked_of(folder, field, base, storage or Storage(), listing.names_in)


def versions_in(
    folder: str,
    names: Collection[str],
    field: str = "data.train",
    base: str = "",
    storage: Storage | None = None,
) -> dict[str, str]:
    """Of the given names those that are in a folder, from one listing of it, and the version of
    each. Raises InputError with ``field``.
    """

    def ask(file_system: Any, path: str) -> dict[str, dict[str, Any]]:
        return listing.entries_of(file_system, path, names)

    found = _asked_of(folder, field, base, storage or Storage(), ask)
    return {name: _version(entry) for name, entry in found.items()}


def _asked_of(
    folder: str, field: str, base: str, storage: Storage, ask: Callable[[Any, str], _T]
) -> _T:
    location = _location(folder, base)
    try:
        file_system, path = storage.file_system(location)
        file_system.invalidate_cache()
        return storage.patience.persist(lambda: ask(file_system, path), location)
    except (ValueError, ImportError) as error:
        raise InputError(field, f"'{folder}' cannot be opened ({reason(error)})") from None
    except PermissionError as error:
        raise InputError(field, f"'{folder}' cannot be read ({reason(error)})") from None
    except OSError as error:
        raise InputError(field, f"'{folder}' is no folder ({reason(error)})") from None


def _location(pattern: str, base: str) -> str:
    return f"{base.rstrip('/')}/{pattern}" if base and _is_relative(pattern) else pattern


def _is_relative(pattern: str) -> bool:
    return "://" not in pattern and not pattern.startswith("/")


def _matches(pattern: str, field: str, base: str, storage: Storage) -> list[SourceFile]:
    location = _location(pattern, base)
    try:
        file_system, path = storage.file_system(location)
        entries = _with_patience(storage, file_system, path, location)
        for entry in entries:
            check_path(urlsplit(location).scheme, entry["name"])
    except (ValueError, ImportError) as error:  # such as an unknown protocol
        raise InputError(field, f"'{pattern}' cannot be opened ({reason(error)})") from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise InputError(field, f"'{pattern}' cannot be read ({where}{reason(error)})") from None
    if not entries:
        raise InputError(
            field, f"nothing matches '{pattern}': {_advice(file_system, path, pattern, base)}"
        )
    return [_file(file_system, entry, location, storage) for entry in entries]


def _with_patience(
    storage: Storage, file_system: Any, path: str, location: str
) -> list[dict[str, Any]]:
    if is_local(file_system):
        return _listed(file_system, path)
    file_system.invalidate_cache()  # what was there the last time
    return storage.patience.persist(lambda: _listed(file_system, path), location)


def _listed(file_system: Any, path: str) -> list[dict[str, Any]]:
    kind = kind_of(file_system, path)
    if kind is None and listing.is_pattern(path):
        entries = listing.matches(file_system, path)
    elif kind == "directory":
        entries = [entry for entry in file_system.ls(path, detail=True) if _visible(entry["name"])]
    elif kind is not None:
        entries = [file_system.info(path)]
    else:
        entries = []
    return [entry for entry in entries if entry["type"] != "directory"]


def _file(
    file_system: Any, entry: Mapping[str, Any], location: str, storage: Storage
) -> SourceFile:
    size = int(entry["size"] or 0)
    url = _url(file_system, entry["name"], location)
    return SourceFile(file_system, entry["name"], size, url, _version(entry), storage)


def _version(entry: Mapping[str, Any]) -> str:
    stamps = (str(entry[name]) for name in _VERSIONS if entry.get(name) is not None)
    return "-".join([str(int(entry["size"] or 0)), *islice(stamps, 1)])


def _url(file_system: Any, path: str, location: str) -> str:
    if is_local(file_system):
        return path
    parts = urlsplit(location)
    if parts.scheme in BY_HOST:  # whose file systems may leave out where they are
        return f"{parts.scheme}://{parts.netloc}{path}"
    return str(file_system.unstrip_protocol(path))


def _visible(path: str) -> bool:
    """Whether a file in a folder is data: by its ending, and neither hidden nor half written."""
    return path.endswith(SUFFIXES) and path.rpartition("/")[2][0] not in "._"


def _advice(file_system: Any, path: str, pattern: str, base: str) -> str:
    if file_system.isdir(path):
        return f"the folder holds no {', '.join(SUFFIXES)}"
    if not _is_relative(pattern):
        return "check the path"
    start = base if base and not _is_relative(base) else Path(base).absolute()
    return f"check the path, which starts from {start}"


def is_local(file_system: Any) -> bool:
    named = file_system.protocol
    return "file" in ((named,) if isinstance(named, str) else named)
