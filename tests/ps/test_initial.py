import numpy as np
import pytest

from heterps.errors import InputError
from heterps.ps.initial import INITIALIZERS, Constant, Normal, Uniform, Zeros
from heterps.testing.tables import STORES, make_store, pull

IDS = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 20_000)


def test_a_row_depends_on_seed_and_id_alone():
    rows = Normal(1.0).rows(IDS, 4, seed=3)
    assert Normal(1.0).rows(IDS[::-1], 4, seed=3)[::-1].tobytes() == rows.tobytes()
    assert Normal(1.0).rows(IDS, 6, seed=3)[:, :4].tobytes() == rows.tobytes()
    assert (Normal(1.0).rows(IDS, 4, seed=4) != rows).any(axis=1).all()


def test_uniform_fills_its_interval_evenly():
    rows = Uniform(0.5).rows(IDS, 4, seed=0)
    assert -0.5 <= rows.min() < -0.499
    assert 0.499 < rows.max() < 0.5
    counts = np.histogram(rows, 10, (-0.5, 0.5))[0]
    assert counts.max() - counts.min() < 0.1 * counts.mean()


def test_normal_has_the_asked_deviation():
    rows = Normal(0.2).rows(IDS, 4, seed=0).astype(np.float64)
    assert abs(rows.mean()) < 0.005
    assert rows.std() == pytest.approx(0.2, rel=0.02)
    assert np.mean(np.abs(rows) < 0.2) == pytest.approx(0.683, abs=0.01)


def test_columns_are_not_correlated():
    rows = Normal(1.0).rows(IDS, 3, seed=0)
    assert np.abs(np.corrcoef(rows.T) - np.eye(3)).max() < 0.03


def test_constant_and_zeros():
    assert (Constant(0.25).rows(IDS[:3], 2, 0) == 0.25).all()
    assert (Zeros().rows(IDS[:3], 2, 0) == 0).all()


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", INITIALIZERS)
@pytest.mark.parametrize("seed", [0, 1, 2**63 + 5])
def test_a_store_gives_these_rows_to_unseen_ids(kind, name, seed):
    initial = INITIALIZERS[name](0.3)
    store = make_store(kind, 17, initial=initial, seed=seed)
    assert pull(store, IDS[:500]).tobytes() == initial.rows(IDS[:500], 17, seed).tobytes()


def test_a_scale_that_is_no_number_is_refused():
    with pytest.raises(InputError, match=r"initial\.scale"):
        Uniform(float("nan"))
