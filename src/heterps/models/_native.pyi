import numpy as np
from numpy.typing import NDArray

def find_distinct(
    ids: NDArray[np.int64], distinct: NDArray[np.int64], inverse: NDArray[np.int64]
) -> int:
    """How many distinct ids there are; they are written in order of first occurrence."""

def expand(
    values: NDArray[np.float32], inverse: NDArray[np.int64], out: NDArray[np.float32]
) -> None: ...
def sum_by(
    inverse: NDArray[np.int64], grads: NDArray[np.float32], sums: NDArray[np.float32]
) -> None:
    """``sums[inverse[i]] += grads[i]`` in order of i, from zero."""
