"""Permutations that are a function of their keys alone: not of numpy's version or the platform."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_PIECE = 8192
_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
    (np.uint64(31), np.uint64(0)),
)


def mix64(words: Words) -> Words:
    """A bijection on 64-bit words that spreads every bit over all (splitmix64's finalizer)."""
    mixed = words.copy()
    mix64_in_place(mixed)
    return mixed


def mix64_in_place(words: Words) -> None:
    """In pieces that stay in the processor's cache."""
    shifted = np.empty(min(len(words), _PIECE), np.uint64)
    for start in range(0, len(words), _PIECE):
        piece = words[start : start + _PIECE]
        scratch = shifted[: len(piece)]
        for shift, factor in _ROUNDS:
            np.right_shift(piece, shift, out=scratch)
            piece ^= scratch
            if factor:
                piece *= factor


def key_of(*parts: int) -> int:
    """One 64-bit key from several whole numbers, their order included."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = mix64(key + np.uint64((part + _GOLDEN) & _MASK))
    return int(key[0])


def permutation(size: int, key: int) -> npt.NDArray[np.int64]:
    """The numbers below ``size`` in an order drawn by ``key``.

    Each number is sorted by the upper bits of a hash; it stands in the lower bits itself, so one
    plain sort is enough, and equal hashes have an order.
    """
    bits = np.uint64(max(size - 1, 1).bit_length())
    numbers = np.arange(size, dtype=np.uint64)
    words = mix64(numbers * np.uint64(_GOLDEN) + np.uint64(key))
    words = (words >> bits << bits) | numbers
    words.sort()
    words &= (np.uint64(1) << bits) - np.uint64(1)
    return words.view(np.int64)
