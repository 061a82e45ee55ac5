"""What the sparse slots held that something was trained on, as its manifest says: a model's and a
snapshot's. Those of earlier versions say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heterps.data.schema import SlotKind

_KEY = "slots"


def slots_document(kinds: Mapping[str, SlotKind]) -> dict[str, Any]:
    """For a manifest."""
    return {_KEY: {name: held.kind for name, held in kinds.items()}}


def kinds_in(about: Mapping[str, Any], whose: str) -> dict[str, SlotKind]:
    """By what a manifest says; ``whose`` it is, for messages."""
    return {name: SlotKind(str(kind), whose) for name, kind in about.get(_KEY, {}).items()}
