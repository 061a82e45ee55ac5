"""Rows and gradients on the wire in fewer bits than float32, rounded to the nearest (even)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heterps.ps import _native

Floats = NDArray[np.float32]
# The names of frames: float32, float16 and bfloat16 (in numpy the upper half, as uint16).
WIRE_DTYPES = ("f4", "f2", "bf16")


def encode_rows(rows: Floats, dtype: str, out: NDArray[Any]) -> None:
    if dtype == "bf16":
        _native.to_bf16(rows.reshape(-1), out.reshape(-1))
    elif dtype == "f2":
        _native.to_fp16(rows.reshape(-1), out.reshape(-1).view(np.uint16))
    else:
        np.copyto(out, rows)


def decode_rows(rows: NDArray[Any], dtype: str) -> Floats:
    """Float32 as it is, anything else into a new array."""
    if dtype == "f4":
        return rows
    out = np.empty(rows.shape, np.float32)
    bits = rows.reshape(-1).view(np.uint16)
    if dtype == "bf16":
        _native.from_bf16(bits, out.reshape(-1))
    else:
        _native.from_fp16(bits, out.reshape(-1))
    return out
