"""How files are reached, wherever they are: options of their file systems, patience, a cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import fsspec
import fsspec.core

from heterps.errors import InputError, MissingExtraError
from heterps.storage.patience import Patience, reason
from heterps.storage.range_cache import RangeCache
from heterps.storage.urls import (
    BY_HOST,
    check_path,
    misread,
    password_problem,
    path_of,
    without_password,
)

# What the file systems of a protocol are made of, and the extra that brings it.
_EXTRAS = {
    "hdfs": ("hdfs_native", "hdfs"),
    "viewfs": ("hdfs_native", "hdfs"),
    "webhdfs": ("requests", "hdfs"),
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
}


# fsspec forgets its file systems in a child right after a fork. The end of one with a client in
# native code waits for threads there that the child does not have, and so would whoever forks.
_KEPT: dict[int, Any] = {}


@dataclass(frozen=True)
class Storage:
    """``options`` are keyword arguments of fsspec's file systems, by protocol."""

    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cache: RangeCache | None = None
    patience: Patience = field(default_factory=Patience)

    def file_system(self, location: str) -> tuple[Any, str]:
        """The file system of a path or URL, and what it calls it. Raises MissingExtraError,
        InputError for a password in it, and ValueError or ImportError for a protocol that nobody
        knows, for options that its client refuses, and for a path that it would take for another.
        """
        problem = password_problem(location)
        if problem is not None:
            raise InputError(without_password(location), problem)
        protocol = location.partition("://")[0] if "://" in location else "file"
        needed = _EXTRAS.get(protocol)
        if needed is not None and find_spec(needed[0]) is None:
            raise MissingExtraError(f"{protocol}://", needed[1])
        if protocol in BY_HOST:
            check_path(protocol, path_of(location))
        file_system, path = _opened(location, protocol, self.options.get(protocol, {}))
        if protocol in ("hdfs", "viewfs"):
            _KEPT[id(file_system)] = file_system
        if protocol in BY_HOST and path_of(location) not in ("/", path):
            raise misread(path_of(location))
        return file_system, path


def _opened(location: str, protocol: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(location, **options)
    except (TypeError, RuntimeError) as error:  # of hdfs-native, where there is no host
        if protocol in ("hdfs", "viewfs") and "fs.defaultFS" in str(error):
            problem = "it names no host, and no core-site.xml in HADOOP_CONF_DIR has fs.defaultFS"
            raise ValueError(problem) from None
        raise ValueError(f"{reason(error)}: check the options under storage.{protocol}") from None
    return found


def kind_of(file_system: Any, path: str) -> str | None:
    """``file`` or ``directory``; None for what is not there. Raises what else goes wrong, which
    fsspec's own questions take for a no.
    """
    try:
        return str(file_system.info(path)["type"])
    except FileNotFoundError:
        return None
