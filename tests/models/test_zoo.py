"""The zoo: its sizes, its figures, and that each model learns."""

import math

import pytest
import torch

from heterps.errors import InputError
from heterps.models.trace import trace
from heterps.models.zoo import ZOO
from heterps.testing.models import make_batch, make_tables, make_tiny
from heterps.testing.reference_loop import reference_loop

NAMES = sorted(ZOO)


def criteo(samples=2):
    ids = torch.arange(samples)
    return {
        "label": torch.zeros(samples),
        "dense": torch.zeros(samples, 13),
        **{f"C{number}": ids + 100 * number for number in range(1, 27)},
        "user": ids,
        "item": ids,
        "history": torch.arange(3 * samples),
        "history.offsets": torch.arange(0, 3 * samples + 1, 3),
    }


@pytest.mark.parametrize(
    ("name", "count"), [("ctrdnn", 16), ("matchnet", 16), ("two_emb", 10), ("nce", 5)]
)
def test_the_number_of_layers_and_that_the_defaults_run(name, count):
    chain = ZOO[name]()
    assert len(chain.layers) == count
    found = trace(chain, criteo())
    assert "other" not in {layer.kind for layer in found.layers}
    assert found.warnings == ()


def test_the_model_of_the_benchmarks():
    chain = ZOO["ctrdnn"](hidden=(400, 400, 400), norm=False)
    found = trace(chain, criteo(), {"default": 26 * 10**6 * 64})
    fc = [layer for layer in found.layers if layer.kind == "fc"]
    assert [layer.weight_bytes for layer in fc] == [
        4 * (429 * 400 + 400),
        4 * (400 * 400 + 400),
        4 * (400 * 400 + 400),
        4 * (400 + 1),
    ]
    # facts: 2.95 MFLOP a sample for a step, which is about three times a forward pass
    assert 3 * sum(layer.flops for layer in found.layers) == pytest.approx(2.95e6, rel=0.01)
    assert found.layers[0].row_bytes == 26 * 16 * 4
    assert found.needed_after("fc1") == ("label", "x")


def test_two_widths_of_rows_in_one_model():
    chain = ZOO["two_emb"]()
    assert chain.tables == {"default": 32, "narrow": 8}
    assert chain.row_layers["wide"].slots == tuple(f"C{n}" for n in range(1, 14))
    assert chain.get_parameter("fc1.weight").shape == (256, 13 * 32 + 13 * 8 + 13)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_model_learns_a_batch_by_heart(name):
    args = {"dropout": 0.0} if name == "ctrdnn" else {}
    chain = make_tiny(name, seed=2, **args)
    tables = make_tables(chain, "adagrad", 0.1)
    batch = [make_batch(8, seed=1), make_batch(8, seed=2)]
    if name == "nce":
        batch = [{**part, "item": part["C1"].abs() % 3} for part in batch]
    losses = reference_loop(
        chain, [batch] * 120, tables, lambda weights: torch.optim.Adam(weights, lr=0.01)
    )
    assert losses[-1] < 0.5 * losses[0]
    assert all(math.isfinite(loss) for loss in losses)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_model(name):
    one, two, other = make_tiny(name), make_tiny(name), make_tiny(name, seed=1)
    pairs = zip(one.state_dict().values(), two.state_dict().values(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    assert not all(torch.equal(*pair) for pair in pairs)


def test_models_without_dense_columns_do_not_read_any():
    batch = criteo()
    del batch["dense"]
    for name in ("ctrdnn", "two_emb"):
        trace(ZOO[name](dense=0), batch)


def test_slots_have_to_be_a_list():
    with pytest.raises(InputError, match="slots"):
        ZOO["ctrdnn"](slots="C1")
