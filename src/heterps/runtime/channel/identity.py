"""Who a worker is to its neighbours."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heterps.errors import WireError
from heterps.runtime.channel.peer import Place

# In a hello's sixteen bytes for the client.
_FORM = struct.Struct(">8sII")
_MARK = b"worker\0\0"


@dataclass(frozen=True)
class Identity:
    """A worker, in a generation of a run."""

    key: bytes
    generation: int
    place: Place
    encrypt: bool = False

    def client(self) -> bytes:
        return _FORM.pack(_MARK, *self.place)

    def about(self) -> Mapping[str, Any]:
        return {"stage": self.place.stage, "replica": self.place.replica}


def place_of(client: bytes) -> Place:
    """Raises WireError when it is no worker's name."""
    mark, stage, replica = _FORM.unpack(client)
    if mark != _MARK:
        raise WireError("not a worker")
    return Place(stage, replica)
