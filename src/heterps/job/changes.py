"""Changes of single fields of a document: ``workload.epochs=2``, ``cluster.types.cpu.limit=4``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heterps.errors import InputError, UnknownNameError
from heterps.job.fields import shown


@dataclass(frozen=True)
class Change:
    """``keys`` lead to the field; an entry of a list goes by its number or its ``name``."""

    keys: tuple[str, ...]
    value: Any

    @property
    def path(self) -> str:
        return ".".join(self.keys)

    def apply(self, document: dict[str, Any]) -> None:
        """Raises InputError for a path that leads nowhere."""
        at: Any = document
        for depth, key in enumerate(self.keys[:-1]):
            if isinstance(at, dict) and at.get(key) is None:
                at[key] = {}
            at = at[key if isinstance(at, dict) else self._index(at, depth)]
        if isinstance(at, dict):
            at[self.keys[-1]] = self.value
        else:
            at[self._index(at, len(self.keys) - 1)] = self.value

    def _index(self, entries: object, depth: int) -> int:
        where, key = f"--set {'.'.join(self.keys[:depth])}", self.keys[depth]
        if not isinstance(entries, list):
            raise InputError(where, f"is {shown(entries)}, which has no field '{key}'")
        names = [entry.get("name") if isinstance(entry, dict) else entry for entry in entries]
        if key in names:
            return names.index(key)
        if key.isdigit() and int(key) < len(entries):
            return int(key)
        known = [str(name) for name in names if name is not None]
        raise UnknownNameError(where, "entry", key, known)


def read_change(text: str, parse: Callable[[str, str], Any]) -> Change:
    """From ``path=value``; ``parse`` reads the value. Raises InputError."""
    path, sign, value = text.partition("=")
    keys = tuple(part for key in path.strip().split(".") for part in _parts(key))
    if not sign or not all(keys):
        raise InputError("--set", f"expected path=value such as workload.epochs=2, got '{text}'")
    return Change(keys, parse(value, f"--set {path.strip()}"))


def _parts(key: str) -> list[str]:
    """``types[0]`` is ``types`` and ``0``."""
    name, bracket, rest = key.partition("[")
    return [name, *rest.rstrip("]").split("][")] if bracket else [name]
