"""A share of the samples set aside for validation, drawn from every row group.

The draw has a key of its own, so that runs with different seeds validate on the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from heterps.data.shuffle import key_of, permutation

_KEY = 3


def held_out(sizes: Sequence[int], fraction: float) -> list[int]:
    """How many rows of each row group validation gets; together the fraction, rounded down."""
    ends = np.floor(np.cumsum(np.asarray(sizes, np.int64)) * fraction).astype(np.int64)
    return [int(count) for count in np.diff(ends, prepend=0)]


def rows_of_part(
    row_group: int, size: int, held: int, *, validation: bool
) -> npt.NDArray[np.int64]:
    """The rows of one part, in the order of the file."""
    drawn = permutation(size, key_of(_KEY, row_group))
    return np.sort(drawn[:held] if validation else drawn[held:])
