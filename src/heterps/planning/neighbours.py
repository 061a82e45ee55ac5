"""The assignments that differ from a given one by a single move."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_DISTANCES = np.arange(1, 5)


def neighbours(assignment: NDArray[np.int32], types: int) -> NDArray[np.int32]:
    """Every assignment one move away, a row of type numbers each, without repetition.

    A move gives one type to a span of layers: a single layer takes any other type, a border between
    two stages moves by one to four layers, a whole stage takes any other type (that of a stage
    beside it merges the two). Whether the result is feasible is not asked. The order is fixed.
    """
    first, end, kind = (
        np.concatenate(parts)
        for parts in zip(
            _single_layers(assignment, types),
            _border_moves(assignment),
            _whole_stages(assignment, types),
            strict=True,
        )
    )
    return _distinct(_retype(assignment, first, end, kind), assignment)


def exchanges(
    assignment: NDArray[np.int32], moved: NDArray[np.int32], most: int
) -> NDArray[np.int32]:
    """Two moves at once: the rows of ``moved`` differ from the assignment by a move each, and those
    that touch different layers are put together, two at a time; at most ``most`` pairs, the first
    rows before the last."""
    changed = moved != assignment
    one, other = np.triu_indices(len(moved), 1)
    apart = ~(changed[one] & changed[other]).any(axis=1)
    one, other = one[apart], other[apart]
    order = np.argsort(one + other, kind="stable")[:most]
    one, other = one[order], other[order]
    both = np.where(changed[one], moved[one], moved[other])
    return _distinct(both.astype(np.int32), assignment)


def crossings(plans: NDArray[np.int32], stages: int = 3) -> NDArray[np.int32]:
    """Each plan with up to ``stages`` neighbouring stages of each other plan put into it."""
    rows = [plans[:1]]
    position = np.arange(plans.shape[1])
    for donor in plans:
        edges = np.concatenate(([0], _borders(donor), [plans.shape[1]]))
        first, last = np.triu_indices(len(edges), 1)
        close = last - first <= stages
        inside = (position >= edges[first[close], None]) & (position < edges[last[close], None])
        rows += [np.where(inside, donor, other).astype(np.int32) for other in plans]
    return _distinct(np.concatenate(rows), plans[0])


def _retype(
    assignment: NDArray[np.int32],
    first: NDArray[np.int64],
    end: NDArray[np.int64],
    kind: NDArray[np.int64],
) -> NDArray[np.int32]:
    position = np.arange(len(assignment))
    inside = (position >= first[:, None]) & (position < end[:, None])
    return np.where(inside, kind[:, None], assignment).astype(np.int32)


_Moves = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _single_layers(assignment: NDArray[np.int32], types: int) -> _Moves:
    first = np.arange(len(assignment))
    return _retyped(first, first + 1, assignment, types)


def _whole_stages(assignment: NDArray[np.int32], types: int) -> _Moves:
    first = np.concatenate(([0], _borders(assignment)))
    end = np.concatenate((first[1:], [len(assignment)]))
    return _retyped(first, end, assignment[first], types)


def _border_moves(assignment: NDArray[np.int32]) -> _Moves:
    """Each border to the left, then to the right; at the ends of the chain a move is cut short."""
    border = np.repeat(_borders(assignment), len(_DISTANCES))
    distance = np.tile(_DISTANCES, len(border) // len(_DISTANCES))
    left = np.maximum(border - distance, 0)
    right = np.minimum(border + distance, len(assignment))
    before, after = assignment[border - 1], assignment[border]
    return (
        np.concatenate((left, border)),
        np.concatenate((border, right)),
        np.concatenate((after, before)),
    )


def _borders(assignment: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.flatnonzero(assignment[1:] != assignment[:-1]) + 1


def _retyped(
    first: NDArray[np.int64], end: NDArray[np.int64], old: NDArray[np.int32], types: int
) -> _Moves:
    """Every span with every type but its own."""
    other = (old[:, None] + np.arange(1, types)) % types
    return np.repeat(first, types - 1), np.repeat(end, types - 1), other.ravel()


def _distinct(rows: NDArray[np.int32], excluded: NDArray[np.int32]) -> NDArray[np.int32]:
    """The rows but for repetitions and ``excluded``, in their order. Rows are told apart by 64-bit
    sums with random weights: that two of them agree by chance will not happen."""
    layers = rows.shape[1]
    weights = np.random.default_rng(layers).integers(-(2**63), 2**63 - 1, layers)
    prints = np.append(excluded @ weights, rows @ weights)
    _, first = np.unique(prints, return_index=True)
    return rows[np.sort(first[first > 0]) - 1]
