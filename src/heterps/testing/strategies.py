"""Hypothesis strategies; hypothesis comes with the development tools only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from heterps.planning.problem import Problem
from heterps.testing.tiny import draw_problem

T = TypeVar("T")


@st.composite
def tiny_problems(draw: st.DrawFn, *, layers: int = 4, types: int = 3) -> Problem:
    """Problems within reach of the reference, feasible or not."""

    def choose(options: Sequence[T]) -> T:
        return draw(st.sampled_from(options))

    return draw_problem(choose, layers=layers, types=types)
