"""64-bit ids from (space, value): the same on every machine and in every file.

A whole number x in a space with salt s becomes mix64(x ^ s). A text is taken in words of 8 bytes,
little-endian and padded with zeros: h starts as mix64(s ^ length) and becomes mix64(h ^ word) for
each of them. The salt is a BLAKE2b of the name of the space, which is the slot's if the job gives
it none. A missing value has an id of its own.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import numpy.typing as npt

from heterps.data.shuffle import mix64, mix64_in_place

Ids = npt.NDArray[np.int64]
_TEXT, _MISSING = 0x5851F42D4C957F2D, 0xDA3E39CB94B95BDB


@cache
def salt_of(space: str) -> int:
    digest = hashlib.blake2b(space.encode(), digest_size=8, person=b"heterps slot").digest()
    return int.from_bytes(digest, "little")


def missing_id(space: str) -> int:
    """What stands for no value."""
    word = mix64(mix64(np.array([salt_of(space) ^ _MISSING], np.uint64)))
    return int(word.view(np.int64)[0])


def hash_integers(space: str, values: Ids) -> None:
    """Puts ids in the place of whole numbers."""
    words = values.view(np.uint64)
    words ^= np.uint64(salt_of(space))
    mix64_in_place(words)


def hash_texts(space: str, data: npt.NDArray[np.uint8], offsets: Ids) -> Ids:
    """The ids of texts that stand one after the other in ``data``; text i from ``offsets[i]`` up to
    ``offsets[i + 1]``.
    """
    lengths = np.diff(offsets)
    hashes = mix64(lengths.view(np.uint64) ^ np.uint64(salt_of(space) ^ _TEXT))
    padded = np.concatenate([data[: offsets[-1]], np.zeros(8, np.uint8)])
    # the 8 bytes from each position on
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    left = np.flatnonzero(lengths > 0)
    starts, remaining = offsets[left], lengths[left]
    while len(left):
        word = words[starts].astype(np.uint64) & _first_bytes(remaining)
        hashes[left] = mix64(hashes[left] ^ word)
        starts, remaining = starts + 8, remaining - 8
        more = remaining > 0
        left, starts, remaining = left[more], starts[more], remaining[more]
    return hashes.view(np.int64)


def _first_bytes(count: Ids) -> npt.NDArray[np.uint64]:
    """A mask of that many bytes, at most 8."""
    shift = 8 * (8 - np.minimum(count, 8)).view(np.uint64)
    mask: npt.NDArray[np.uint64] = np.uint64(0xFFFFFFFFFFFFFFFF) >> shift
    return mask
