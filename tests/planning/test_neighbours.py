import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heterps.planning.neighbours import crossings, exchanges, neighbours

Row = tuple[int, ...]


def rows(assignment: list[int], types: int) -> list[Row]:
    return [tuple(row) for row in neighbours(np.array(assignment, np.int32), types).tolist()]


def with_span(assignment: list[int], first: int, end: int, kind: int) -> Row:
    span = range(max(first, 0), min(end, len(assignment)))
    return tuple(kind if index in span else old for index, old in enumerate(assignment))


def expected(assignment: list[int], types: int) -> set[Row]:
    """By the definition, move by move."""
    count = len(assignment)
    borders = [i for i in range(1, count) if assignment[i] != assignment[i - 1]]
    cuts = [0, *borders, count]
    found = set()
    for kind in range(types):
        found |= {with_span(assignment, i, i + 1, kind) for i in range(count)}
        found |= {with_span(assignment, cuts[i], cuts[i + 1], kind) for i in range(len(cuts) - 1)}
    for border in borders:
        for distance in range(1, 5):
            found.add(with_span(assignment, border - distance, border, assignment[border]))
            found.add(with_span(assignment, border, border + distance, assignment[border - 1]))
    return found - {tuple(assignment)}


def test_each_layer_and_each_stage_takes_each_other_type():
    assert sorted(rows([0, 0], 3)) == [(0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 2)]


def test_a_border_moves_by_up_to_four_layers():
    found = rows([0] * 6 + [1] * 6, 2)
    assert tuple([0] * 10 + [1] * 2) in found
    assert tuple([0] * 11 + [1]) not in found
    assert tuple([0] * 2 + [1] * 10) in found


def test_a_stage_merges_into_the_one_beside_it():
    assert (0, 0, 0, 0, 0, 0) in rows([0, 0, 1, 1, 0, 0], 3)


def test_one_type_leaves_nothing_to_change():
    assert rows([0, 0, 0], 1) == []


@given(
    st.integers(1, 4).flatmap(
        lambda t: st.tuples(st.lists(st.integers(0, t - 1), min_size=1, max_size=12), st.just(t))
    )
)
def test_the_neighbours_are_those_of_the_definition_each_once(case: tuple[list[int], int]):
    found = rows(*case)
    assert len(set(found)) == len(found)
    assert set(found) == expected(*case)


def test_exchanges_put_two_moves_together_that_touch_different_layers():
    plan = np.array([0, 0, 1, 1], np.int32)
    moved = np.array([[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], np.int32)
    rows = [tuple(row) for row in exchanges(plan, moved, 10).tolist()]
    assert rows == [(1, 0, 1, 0), (1, 0, 0, 0)]
    assert len(exchanges(plan, moved, 1)) == 1


def test_crossings_put_stages_of_one_plan_into_another():
    plans = np.array([[0, 0, 0, 0], [1, 1, 2, 2]], np.int32)
    rows = {tuple(row) for row in crossings(plans, stages=1).tolist()}
    assert {(1, 1, 0, 0), (0, 0, 2, 2), (1, 1, 2, 2)} == rows
