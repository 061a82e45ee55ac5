"""Every rule against torch.optim, or against its formula in double precision."""

import numpy as np
import pytest
import torch

from heterps.errors import InputError, UnknownNameError
from heterps.ps.initial import Normal
from heterps.ps.rules import RULES, Adagrad, Adam, Ftrl, RowwiseAdagrad, Sgd, make_rule
from heterps.testing.tables import STORES, make_store, pull

IDS = np.array([-(2**63), -1, 0, 1, 2, 3, 10**9, 2**63 - 1], np.int64)
NEAR = {"rtol": 1e-6, "atol": 1e-6}


def pushes(dim: int, count: int = 30, seed: int = 0):
    """Random indices into IDS, with repeats, and their gradients."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = int(rng.integers(1, 20))
        yield (
            rng.integers(0, len(IDS) - 1, size),
            rng.normal(size=(size, dim)).astype(np.float32),
        )


def trained_rows(kind, rule, dim, **settings):
    store = make_store(kind, dim, rule, initial=Normal(0.1), seed=7, **settings)
    for index, grads in pushes(dim):
        store.push(IDS[index], grads, None)
    return pull(store, IDS)


def initial_rows(dim):
    return Normal(0.1).rows(IDS, dim, 7)


def rows_of_torch(make_optimizer, dim, *, sparse):
    weight = torch.nn.Parameter(torch.from_numpy(initial_rows(dim)))
    optimizer = make_optimizer([weight])
    for index, grads in pushes(dim):
        grad = torch.sparse_coo_tensor(
            torch.from_numpy(index)[None], torch.from_numpy(grads), weight.shape
        ).coalesce()
        weight.grad = grad if sparse else grad.to_dense()
        optimizer.step()
    return weight.detach().numpy()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("dim", [1, 3, 16, 17])
class TestAgainstTorch:
    def test_sgd(self, kind, dim):
        expected = rows_of_torch(lambda p: torch.optim.SGD(p, lr=0.1), dim, sparse=False)
        np.testing.assert_allclose(trained_rows(kind, Sgd(lr=0.1), dim), expected, **NEAR)

    def test_adagrad(self, kind, dim):
        rule = Adagrad(lr=0.1, initial_accumulator=0.5)
        expected = rows_of_torch(
            lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
            dim,
            sparse=True,
        )
        np.testing.assert_allclose(trained_rows(kind, rule, dim), expected, **NEAR)

    def test_adam_corrects_its_bias_by_the_step_of_the_table(self, kind, dim):
        expected = rows_of_torch(lambda p: torch.optim.SparseAdam(p, lr=0.01), dim, sparse=True)
        np.testing.assert_allclose(trained_rows(kind, Adam(lr=0.01), dim), expected, **NEAR)


def rows_by_formula(dim, update):
    """``update(w, state, g)`` in double precision, once per id of each push."""
    weights = {i: initial_rows(dim)[i].astype(np.float64) for i in range(len(IDS))}
    states = {i: {} for i in weights}
    for index, grads in pushes(dim):
        for i in set(index.tolist()):
            total = grads[index == i].astype(np.float64).sum(axis=0)
            weights[i] = update(weights[i], states[i], total)
    return np.array(list(weights.values()))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("dim", [1, 3, 16, 17])
class TestAgainstTheFormula:
    def test_rowwise_adagrad(self, kind, dim):
        def update(w, state, g):
            state["s"] = state.get("s", 0.25) + np.mean(g * g)
            return w - 0.1 * g / (np.sqrt(state["s"]) + 1e-10)

        rule = RowwiseAdagrad(lr=0.1, initial_accumulator=0.25)
        expected = rows_by_formula(dim, update)
        np.testing.assert_allclose(trained_rows(kind, rule, dim), expected, **NEAR)

    def test_ftrl(self, kind, dim):
        lr, beta, l1, l2 = 0.1, 1.0, 0.5, 0.01

        def update(w, state, g):
            z, n = state.get("zn", (0.0, 0.0))
            sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / lr
            z, n = z + g - sigma * w, n + g * g
            state["zn"] = z, n
            shrunk = -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / lr + l2)
            return np.where(np.abs(z) <= l1, 0.0, shrunk)

        rule = Ftrl(lr=lr, beta=beta, l1=l1, l2=l2)
        rows = trained_rows(kind, rule, dim)
        np.testing.assert_allclose(rows, rows_by_formula(dim, update), **NEAR)


@pytest.mark.parametrize("kind", STORES)
def test_ftrl_sets_small_weights_to_exactly_zero(kind):
    store = make_store(kind, 2, Ftrl(lr=0.1, l1=1.0))
    store.push(np.array([5]), np.array([[0.5, -3.0]], np.float32), None)
    row = pull(store, [5])[0]
    assert row[0] == 0
    assert row[1] > 0


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", RULES)
def test_the_learning_rate_of_a_push_replaces_the_tables(kind, name):
    grads = np.array([[1.0, -2.0]], np.float32)
    one, other = make_store(kind, 2, RULES[name](lr=0.1)), make_store(kind, 2, RULES[name](lr=0.4))
    one.push(np.array([3]), grads, 0.4)
    other.push(np.array([3]), grads, None)
    assert pull(one, [3]).tobytes() == pull(other, [3]).tobytes()


def test_a_rule_is_made_by_name_or_given_with_another_learning_rate():
    assert make_rule("adam") == Adam()
    assert make_rule(Adam(eps=1e-3), lr=0.5) == Adam(lr=0.5, eps=1e-3)


def test_an_unknown_rule_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'adagrad'"):
        make_rule("adagard")


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: Sgd(lr=float("nan")), "lr"),
        (lambda: Sgd(lr=-1.0), "lr"),
        (lambda: Ftrl(lr=0.0), "lr"),
        (lambda: Adam(beta1=1.0), "beta1"),
        (lambda: Adagrad(eps=float("inf")), "eps"),
        (lambda: make_rule(3), "rule"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_refused_by_name(make, path):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.path == path
