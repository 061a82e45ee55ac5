import math

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import binary_auroc

from heterps.errors import InputError
from heterps.models.zoo import ZOO
from heterps.runtime.metrics import (
    BinaryCounts,
    LossCounts,
    SampledCounts,
    chosen_metric,
    counts_for,
    is_better,
    task_of,
    unpack_counts,
)


def drawn(n: int, spread: float = 1.0, shift: float = -1.0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(n, generator=generator)
    chance = torch.sigmoid(score - 1)
    label = torch.bernoulli(chance, generator=generator)
    return torch.sigmoid(spread * score + shift), label


def counted(prediction, label, weight=None) -> BinaryCounts:
    counts = BinaryCounts()
    counts.add(prediction, label, weight)
    return counts


@pytest.mark.parametrize("spread", [0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("shift", [-3.0, 0.0])
def test_the_auc_is_right_to_a_ten_thousandth(spread, shift):
    prediction, label = drawn(20_000, spread, shift)
    exact = binary_auroc(prediction, label.long()).item()
    assert counted(prediction, label).auc == pytest.approx(exact, abs=1e-4)


def test_equal_predictions_count_half():
    prediction, label = torch.tensor([0.25, 0.25, 0.5, 0.0, 1.0]), torch.tensor([0, 1, 0, 0, 1.0])
    exact = binary_auroc(prediction, label.long()).item()
    assert counted(prediction, label).auc == pytest.approx(exact)
    assert counted(torch.full((4,), 0.3), torch.tensor([0, 1, 0, 1.0])).auc == 0.5


def test_the_figures_of_four_samples_by_hand():
    prediction, label = torch.tensor([0.5, 0.25, 0.75, 0.5]), torch.tensor([1.0, 0, 1, 0])
    counts = counted(prediction, label)
    expected = (2 * math.log(2) - 2 * math.log(0.75)) / 4
    assert counts.logloss == pytest.approx(expected)
    assert counts.normalised_entropy == pytest.approx(expected / math.log(2))
    assert counts.calibration == pytest.approx(1.0)
    assert counts.auc == pytest.approx(3.5 / 4)
    assert counts.samples == 4


def test_a_weight_is_like_so_many_samples():
    prediction, label = drawn(500)
    weight = torch.randint(1, 4, (500,))
    repeated = counted(*(v.repeat_interleave(weight) for v in (prediction, label)))
    weighted = counted(prediction, label, weight)
    for metric in ("auc", "logloss", "normalised_entropy", "calibration"):
        assert weighted.value(metric) == pytest.approx(repeated.value(metric))
    assert weighted.loss == pytest.approx(weighted.logloss * weight.sum().item() / 500)


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=5))
def test_parts_put_together_are_the_whole_and_survive_a_message(sizes):
    prediction, label = drawn(sum(sizes))
    merged = counts_for("binary")
    for part, truth in zip(prediction.split(sizes), label.split(sizes), strict=True):
        sent = msgpack.unpackb(msgpack.packb(counted(part, truth).pack()))
        merged.merge(unpack_counts(sent))
    whole = counted(prediction, label).values()
    assert merged.values() == pytest.approx(whole, nan_ok=True)


def test_labels_of_one_kind_or_predictions_that_are_none_have_no_auc():
    prediction, _ = drawn(10)
    assert math.isnan(counted(prediction, torch.ones(10)).auc)
    assert math.isnan(counted(prediction, torch.ones(10)).normalised_entropy)
    broken = counted(torch.tensor([math.nan, 0.5]), torch.tensor([1.0, 0.0]))
    assert math.isnan(broken.auc)
    assert math.isnan(broken.logloss)
    assert all(math.isnan(value) for value in BinaryCounts().values().values())


def test_certain_and_wrong_costs_much_but_not_everything():
    assert 15 < counted(torch.tensor([1.0]), torch.tensor([0.0])).logloss < 20


def test_sampled_counts_give_loss_and_recall():
    counts = SampledCounts(k=2)
    prediction = torch.tensor([0.5, 0.25])
    counts.add(prediction, torch.tensor([1, 2]))
    counts.add(prediction, torch.tensor([0, 5]), torch.tensor([1.0, 3.0]))
    again = unpack_counts(msgpack.unpackb(msgpack.packb(counts.pack())))
    assert again.value("recall") == pytest.approx(2 / 6)
    assert again.value("loss") == pytest.approx((1 + 2 + 1 + 6) * math.log(2) / 4)
    assert again.k == 2


def test_a_model_without_a_task_is_judged_by_its_loss():
    counts = counts_for(None)
    counts.observe({"prediction": torch.zeros(3), "loss": torch.tensor(2.0)}, {})
    counts.observe({"prediction": torch.zeros(1), "loss": torch.tensor(6.0)}, {})
    assert isinstance(counts, LossCounts)
    assert counts.values() == {"loss": 3.0}


def test_the_zoo_has_tasks():
    assert {name: task_of(build()) for name, build in ZOO.items()} == {
        "ctrdnn": "binary",
        "matchnet": "binary",
        "two_emb": "binary",
        "nce": "sampled",
    }


def test_the_metric_to_go_by_is_the_jobs_or_the_tasks():
    assert [chosen_metric(None, task) for task in ("binary", "sampled", None)] == [
        *("auc", "recall", "loss")
    ]
    assert chosen_metric("logloss", "binary") == "logloss"
    with pytest.raises(InputError, match=r"\(it has: auc, logloss, loss\)"):
        chosen_metric("recall", "binary")
    with pytest.raises(InputError) as caught:
        chosen_metric("auc", "sampled")
    assert str(caught.value) == (
        "validation.metric: a sampled model has no auc (it has: recall, loss)"
    )


def test_better_depends_on_the_metric():
    assert is_better("auc", 0.7, 0.6)
    assert not is_better("logloss", 0.7, 0.6)
    assert is_better("loss", 0.7, None)
    assert is_better("loss", 0.7, math.nan)
    assert not is_better("auc", math.nan, 0.1)


@pytest.mark.parametrize("counts", [BinaryCounts(), SampledCounts(3)])
def test_a_layer_may_make_no_predictions_in_training(counts):
    counts.observe({"loss": torch.tensor(0.5)}, {"label": torch.ones(4)})
    assert counts.samples == 0


@pytest.mark.parametrize(
    ("task", "made", "why"),
    [
        (None, {}, "the last layer has no task, and makes no 'loss' when it is not training"),
        (None, {"loss": torch.tensor(math.nan)}, "the loss is not finite"),
        ("binary", {}, "there is no prediction"),
        ("binary", {"prediction": torch.tensor([0.5, math.nan])}, "predictions are not finite"),
        ("binary", {"prediction": torch.tensor([0.5, 0.1])}, "labels are of one class"),
        ("sampled", {"prediction": torch.tensor([0.5, math.nan])}, "predictions are not finite"),
        ("sampled", {"prediction": torch.tensor([0.5, 0.1])}, "no target was ranked"),
    ],
)
def test_why_there_is_no_metric(task, made, why):
    counts = counts_for(task)
    counts.observe(made, {"label": torch.zeros(2)})
    assert math.isnan(counts.value(chosen_metric(None, task)))
    assert counts.missing == why
