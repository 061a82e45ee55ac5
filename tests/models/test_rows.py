"""Distinct ids, expansion and sums per id: the native calls give what torch gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heterps.models.rows import distinct_of, expanded, summed
from heterps.runtime.threads import InThreads


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Of torch: with one the expansion is our own, with more it is torch's."""
    with InThreads(request.param):
        yield request.param


ids_of_any_size = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20), max_size=200).map(
    lambda ids: torch.tensor(ids, dtype=torch.int64)
)


@given(ids_of_any_size)
def test_distinct_ids_stand_in_order_of_first_occurrence(ids: torch.Tensor) -> None:
    distinct, inverse = distinct_of(ids)
    assert distinct.tolist() == list(dict.fromkeys(ids.tolist()))
    assert torch.equal(distinct[inverse], ids)


def test_ids_need_not_lie_side_by_side() -> None:
    distinct, inverse = distinct_of(torch.tensor([[7, 1], [8, 1], [7, 1]])[:, 0])
    assert (distinct.tolist(), inverse.tolist()) == ([7, 8], [0, 1, 0])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 7, 16, 32])
def test_rows_are_expanded_and_summed_as_torch_does(dim: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(dim)
    inverse = torch.randint(50, (400,), generator=generator)
    values = torch.randn(50, dim, generator=generator).to(dtype).requires_grad_()
    grads = torch.randn(dim, 400, generator=generator).to(dtype).T  # not contiguous
    assert torch.equal(expanded(values, inverse), values[inverse])
    expected = torch.zeros(50, dim, dtype=dtype)
    for row, grad in zip(inverse.tolist(), grads, strict=True):
        expected[row] += grad
    assert torch.equal(summed(inverse, grads, 50), expected)


@pytest.mark.usefixtures("threads")
def test_no_ids_give_no_rows() -> None:
    none = torch.empty(0, dtype=torch.int64)
    assert expanded(torch.empty(0, 4), none).shape == (0, 4)
    assert summed(none, torch.empty(0, 4), 3).tolist() == [[0.0] * 4] * 3


def test_an_index_beyond_the_rows_is_refused(threads: int) -> None:
    error = (ValueError, "out of range for 2 rows") if threads == 1 else (IndexError, "range")
    with pytest.raises(error[0], match=error[1]):
        expanded(torch.ones(2, 4), torch.tensor([0, 2]))
