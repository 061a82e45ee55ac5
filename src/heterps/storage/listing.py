"""What is in folders of any file system. One that cannot be listed is an error here: fsspec's own
``find`` and ``glob`` leave it out, and what is missing would be taken for what there is.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from fsspec.utils import glob_translate

from heterps.storage.access import kind_of

Entry = dict[str, Any]  # as fsspec says: name, type, size and more
_MAGIC = re.compile(r"[*?[]")


def is_pattern(path: str) -> bool:
    return _MAGIC.search(path) is not None


def files_below(system: Any, folder: str) -> Iterator[tuple[str, Entry]]:
    """All files, by their name relative to the folder."""
    if not _is_object_store(system):
        yield from _walked(system, folder)
        return
    # Object stores list all at once, folders or not, and then do raise.
    root = folder.rstrip("/") + "/"
    for name, entry in system.find(folder, detail=True).items():
        relative = name.partition(root)[2]
        if relative:  # some count the folder itself
            yield relative, entry


def names_in(system: Any, folder: str) -> list[str]:
    """All names in a folder, which an object store has wherever it has a bucket. Raises
    FileNotFoundError.
    """
    try:
        found = [str(name).strip("/") for name in system.ls(folder, detail=False)]
    except FileNotFoundError:
        bucket = folder.partition("/")[0]
        if not _is_object_store(system) or kind_of(system, bucket) is None:
            raise
        return []
    return [name.rpartition("/")[2] for name in found if name != folder.strip("/")]


def entries_of(system: Any, folder: str, names: Collection[str]) -> dict[str, Entry]:
    """Of the given names those that are in a folder, from one listing of it; a link counts as what
    it leads to. Raises FileNotFoundError.
    """
    found = {}
    for entry in system.ls(folder, detail=True):
        name = str(entry["name"]).rstrip("/").rpartition("/")[2]
        if name in names:
            with contextlib.suppress(FileNotFoundError):
                found[name] = system.info(entry["name"]) if entry.get("islink") else entry
    return found


def matches(system: Any, pattern: str) -> list[Entry]:
    """Files and folders by a pattern with ``*``, ``?``, ``[…]`` and ``**``."""
    parts = pattern.split("/")
    fixed = next(at for at, part in enumerate(parts) if is_pattern(part))
    root = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else "")
    if root and kind_of(system, root) != "directory":
        return []
    return list(_matching(system, root, parts[fixed:]))


def _is_object_store(system: Any) -> bool:
    """Whether a folder is there only as long as something is in it."""
    return hasattr(system, "_find")


def _matching(system: Any, folder: str, parts: Sequence[str]) -> Iterator[Entry]:
    deep = "**" in parts[0]
    match = re.compile(glob_translate("/".join(parts) if deep else parts[0])).match
    if deep:
        yield from (entry for name, entry in _walked(system, folder) if match(name))
        return
    for name, entry in _listed(system, folder):
        if not match(name):
            continue
        if len(parts) == 1:
            yield entry
        elif entry["type"] == "directory":
            yield from _matching(system, entry["name"], parts[1:])


def _walked(system: Any, folder: str, before: str = "") -> Iterator[tuple[str, Entry]]:
    for name, entry in _listed(system, folder):
        if entry["type"] == "directory":
            yield from _walked(system, entry["name"], f"{before}{name}/")
        else:
            yield before + name, entry


def _listed(system: Any, folder: str) -> list[tuple[str, Entry]]:
    """Raises OSError to try again for a folder that was there a moment ago."""
    try:
        entries = system.ls(folder, detail=True)
    except FileNotFoundError:
        raise OSError(errno.EAGAIN, "changes while it is listed") from None
    named = [(str(entry["name"]).rstrip("/"), entry) for entry in entries]
    own = folder.strip("/")
    return [(name.rpartition("/")[2], entry) for name, entry in named if name.strip("/") != own]
