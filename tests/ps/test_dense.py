import numpy as np
import pytest
import torch

from heterps.errors import InputError, SnapshotError
from heterps.ps.rules import RULES
from heterps.ps.snapshots import Partial
from heterps.testing.tables import STORES, make_table, make_tensor

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(5, 17)).astype(np.float32)
GRADS = RNG.normal(size=(20, 5, 17)).astype(np.float32)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("rule", RULES)
def test_a_tensor_changes_as_the_rows_of_a_table_would(kind, rule):
    """A table's state can be compared, since its rows are restored to the same values."""
    tensor = make_tensor(kind, VALUES, rule)
    table = make_table("reference", 17, rule)
    ids, width = np.arange(5), table.rule.state_width(17)
    state = np.tile(table.rule.initial_state(17), (5, 1)).reshape(5, width)
    table._store.restore(ids, VALUES, state, *np.zeros((2, 5), np.uint32))
    for grads in GRADS:
        tensor.push(grads)
        table.push(ids, grads)
    assert tensor.pull().tobytes() == table.pull(ids).tobytes()
    assert tensor.step == 20


@pytest.mark.parametrize("kind", STORES)
def test_adam_equals_torchs_on_a_dense_tensor(kind):
    tensor = make_tensor(kind, VALUES, "adam", lr=0.01)
    weight = torch.nn.Parameter(torch.from_numpy(VALUES.copy()))
    optimizer = torch.optim.Adam([weight], lr=0.01)
    for grads in GRADS:
        tensor.push(torch.from_numpy(grads))
        weight.grad = torch.from_numpy(grads)
        optimizer.step()
    np.testing.assert_allclose(tensor.pull(), weight.detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0,), (0, 3)])
def test_any_shape_is_kept(kind, shape):
    tensor = make_tensor(kind, np.ones(shape, np.float32), "sgd", lr=0.5)
    tensor.push(np.ones(shape, np.float32))
    assert tensor.pull().shape == shape
    assert (tensor.pull() == 0.5).all()


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("rule", RULES)
def test_a_loaded_tensor_goes_on_bit_for_bit(kind, tmp_path, rule):
    tensor, loaded = make_tensor(kind, VALUES, rule), make_tensor(kind, VALUES, rule)
    tensor.push(GRADS[0])
    tensor.lr = 0.2
    with Partial(tmp_path / "s") as partial:
        partial.publish([], tensors=[tensor.save_part(partial.folder, "w")])
    loaded.load(tmp_path / "s", "w")
    for each in (tensor, loaded):
        each.push(GRADS[1])
    assert tensor.pull().tobytes() == loaded.pull().tobytes()
    assert loaded.step == 2


@pytest.mark.parametrize("kind", STORES)
def test_a_snapshot_of_another_tensor_is_refused(kind, tmp_path):
    tensor = make_tensor(kind, VALUES, "sgd")
    with Partial(tmp_path / "s") as partial:
        partial.publish([], tensors=[tensor.save_part(partial.folder, "w")])
    with pytest.raises(SnapshotError, match="holds: w"):
        tensor.load(tmp_path / "s", "v")
    with pytest.raises(SnapshotError, match="shape"):
        make_tensor(kind, VALUES[1:], "sgd").load(tmp_path / "s", "w")


@pytest.mark.parametrize("kind", STORES)
def test_bad_arguments_are_named(kind):
    tensor = make_tensor(kind, VALUES, "sgd")
    with pytest.raises(InputError, match="grads: expected shape"):
        tensor.push(VALUES[1:])
    with pytest.raises(InputError, match="values: expected float32"):
        make_tensor(kind, VALUES.astype(np.float64))
