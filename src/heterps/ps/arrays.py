"""Arrays that callers hand in: numpy arrays, torch tensors or lists, looked at without a copy.

Torch is never imported: a tensor on the CPU shares its memory through its own ``numpy()``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from heterps.errors import InputError

_IDS = np.dtype(np.int64)
_FLOATS = np.dtype(np.float32)


def ids_of(value: Any, path: str = "ids") -> npt.NDArray[np.int64]:
    """A vector of 64-bit ids."""
    array = _array(value, path, _IDS)
    if array.ndim != 1:
        raise InputError(path, f"expected a vector, got shape {array.shape}")
    return np.ascontiguousarray(array)


def rows_of(value: Any, shape: tuple[int, ...], path: str = "grads") -> npt.NDArray[np.float32]:
    """A matrix of floats of the given shape."""
    array = _array(value, path, _FLOATS)
    _check_shape(array, shape, path)
    return np.ascontiguousarray(array)


def floats_of(value: Any, path: str) -> npt.NDArray[np.float32]:
    """Floats of any shape."""
    array = _array(value, path, _FLOATS)
    return np.ascontiguousarray(array).reshape(array.shape)


def out_of(value: Any, shape: tuple[int, ...], path: str = "out") -> npt.NDArray[np.float32]:
    """A matrix to write into, in place: it is never copied."""
    if isinstance(value, list | tuple):
        raise InputError(path, "expected an array to write into, got a list")
    array = _array(value, path, _FLOATS)
    _check_shape(array, shape, path)
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise InputError(path, "expected contiguous memory that can be written")
    return array


def _check_shape(array: npt.NDArray[Any], shape: tuple[int, ...], path: str) -> None:
    if array.shape != shape:
        raise InputError(path, f"expected shape {shape}, got {array.shape}")


def _array(value: Any, path: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    array = value if isinstance(value, np.ndarray) else _foreign(value, path, dtype)
    if array.dtype != dtype or not array.dtype.isnative:
        raise InputError(path, f"expected {dtype}, got {array.dtype}")
    return array


def _foreign(value: Any, path: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if isinstance(value, list | tuple | range):
        return _from_list(value, path, dtype)
    try:
        if hasattr(value, "detach"):
            return np.asarray(value.detach().numpy())
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InputError(
            path, f"expected {dtype} in the memory of the CPU, got {type(value).__name__}: {error}"
        ) from error


def _from_list(value: Any, path: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Whole numbers for ids, any numbers for rows; nothing is rounded to whole numbers."""
    try:
        if dtype == _IDS and len(value) and np.asarray(value).dtype.kind not in "iu":
            raise TypeError
        return np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(path, f"expected numbers that fit {dtype}") from error
