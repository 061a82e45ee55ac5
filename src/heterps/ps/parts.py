"""What a shard writes of a snapshot: its rows of a table, a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from heterps.errors import SnapshotError
from heterps.ps.bucket_files import BucketWriter, write_tensors
from heterps.ps.manifests import Entry
from heterps.ps.outgoing import Outgoing
from heterps.ps.snapshots import Where
from heterps.storage.places import place

_RANGE = 64  # buckets to a file, so that a shard reads little that is not its own


def write_table(folder: Where, name: str, settings: Entry, capture: Any, buckets: range) -> Entry:
    """Write one shard's rows of a table; the entry belongs into the manifest.

    ``settings`` are compared when the snapshot is loaded; ``dim`` and ``state_width`` are needed.
    """
    target = place(folder) / name
    try:
        with Outgoing(target) as outgoing:
            files = _write_rows(outgoing, settings, capture, buckets)
            extra = _write_extra(outgoing, capture, buckets)
    except OSError as error:
        raise SnapshotError(target, f"cannot be written: {error}") from error
    return {
        "table": name,
        "buckets": [buckets.start, buckets.stop],
        "settings": settings,
        "rows": int(capture.rows),
        "step": int(capture.step),
        "committed": int(capture.committed),
        "files": files,
        "extra": extra,
    }


def _write_rows(outgoing: Outgoing, settings: Entry, capture: Any, buckets: range) -> list[Entry]:
    ends = range(buckets.start // _RANGE * _RANGE, buckets.stop, _RANGE)
    ranges = [range(max(a, buckets.start), min(a + _RANGE, buckets.stop)) for a in ends]
    widths = {"values": settings["dim"], "state": settings["state_width"]}
    writer = BucketWriter(outgoing, capture, ranges, widths)
    writer.write()
    return [
        {**sealed, "buckets": [held.start, held.stop]}
        for sealed, held in zip(outgoing.sent(writer.names), writer.ranges, strict=True)
    ]


def _write_extra(outgoing: Outgoing, capture: Any, buckets: range) -> Entry | None:
    """Ids that wait for admission, and those removed since the base."""
    arrays = {
        "pending_ids": capture.pending_ids,
        "removed": capture.removed,
        "pending_counts": capture.pending_counts,
        "pending_last_seen": capture.pending_last_seen,
    }
    present = {name: array for name, array in arrays.items() if len(array)}
    if not present:
        return None
    name = f"extra-{buckets.start:04}-{buckets.stop:04}.safetensors"
    write_tensors(outgoing, name, present)
    return outgoing.sent([name])[0]


def write_tensor(
    folder: Where,
    name: str,
    settings: Entry,
    step: int,
    values: npt.NDArray[np.float32],
    state: npt.NDArray[np.float32],
) -> Entry:
    """Write a dense tensor and the state of its rule, always whole."""
    target, file = place(folder), f"{name}.safetensors"
    try:
        with Outgoing(target) as outgoing:
            write_tensors(outgoing, file, {"values": values, "state": state})
            (sealed,) = outgoing.sent([file])
    except OSError as error:
        raise SnapshotError(target / file, f"cannot be written: {error}") from error
    return {"tensor": name, "settings": settings, "step": step, "file": sealed}
