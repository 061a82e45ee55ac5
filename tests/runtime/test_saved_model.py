import pytest
import torch

from heterps.errors import SnapshotError
from heterps.runtime.saved_model import load_dense, read_manifest, save_dense, saving

STATE = {"fc.weight": torch.randn(3, 2), "fc.bias": torch.randn(3), "n": torch.tensor(4)}


def save(path, state=STATE, **about):
    with saving(path, about) as folder:
        save_dense(folder, state)


def test_dense_weights_come_back_by_name(tmp_path):
    save(tmp_path / "model")
    loaded = load_dense(tmp_path / "model")
    assert loaded.keys() == STATE.keys()
    assert all(torch.equal(loaded[name], STATE[name]) for name in STATE)


def test_parts_of_one_tensor_are_saved_too(tmp_path):
    flat = torch.arange(6.0)
    save(tmp_path / "model", {"a": flat[:4].view(2, 2).T, "b": flat[4:]})
    loaded = load_dense(tmp_path / "model")
    assert loaded["a"].tolist() == [[0, 2], [1, 3]]
    assert loaded["b"].tolist() == [4, 5]


def test_a_later_model_replaces_an_earlier_one(tmp_path):
    save(tmp_path / "best", auc=0.6)
    save(tmp_path / "best", {"a": torch.zeros(1)}, auc=float("nan"))
    assert read_manifest(tmp_path / "best") == {"auc": None}
    assert load_dense(tmp_path / "best").keys() == {"a"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["best"]


def test_an_error_leaves_what_was_there(tmp_path):
    save(tmp_path / "best", auc=0.6)
    with pytest.raises(AttributeError):
        save(tmp_path / "best", {"a": "no tensor"})
    assert read_manifest(tmp_path / "best") == {"auc": 0.6}
    assert [entry.name for entry in tmp_path.iterdir()] == ["best"]


def test_a_model_that_is_not_whole_is_refused(tmp_path):
    save(tmp_path / "model")
    with (tmp_path / "model/dense.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(SnapshotError, match=r"dense\.safetensors: is missing or has changed"):
        read_manifest(tmp_path / "model")
    (tmp_path / "model/dense.safetensors").write_bytes(b"no")
    with pytest.raises(SnapshotError, match="cannot be read"):
        load_dense(tmp_path / "model")
    with pytest.raises(SnapshotError, match="holds no whole model"):
        read_manifest(tmp_path)
