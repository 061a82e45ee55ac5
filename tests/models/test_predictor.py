"""A trained model used as a torch module."""

import copy
import math

import pytest
import torch
from torch import nn

from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.layers import LogLoss
from heterps.models.local_rows import LocalRows
from heterps.models.predictor import Predictor
from heterps.models.rows import rows_of
from heterps.models.zoo import ZOO
from heterps.testing.models import make_batch, make_tables, make_tiny


@pytest.fixture(params=sorted(ZOO))
def parts(request):
    chain = make_tiny(request.param)
    return chain, LocalRows(make_tables(chain))


def unlabelled(samples=6):
    batch = make_batch(samples)
    del batch["label"]
    return batch


def test_it_predicts_without_labels_what_the_chain_predicts(parts):
    chain, source = parts
    context = Context(training=False)
    asked = chain.ask(unlabelled(), source, context)
    expected = chain(unlabelled(), rows_of(asked), context)["prediction"]
    predicted = Predictor(chain, source)(unlabelled())
    assert torch.equal(predicted, expected)
    assert ((predicted >= 0) & (predicted <= 1)).all()
    assert not predicted.requires_grad


def test_its_state_is_the_chains_by_layer(parts):
    chain, source = parts
    predictor = Predictor(chain, source)
    assert list(predictor.state_dict()) == list(chain.state_dict())
    other = make_tiny_like(chain)
    Predictor(other, source).load_state_dict(predictor.state_dict())
    for one, two in zip(chain.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert len(list(predictor.parameters())) == len(list(chain.parameters()))


def make_tiny_like(chain):
    other = copy.deepcopy(chain)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    return other


def test_a_copy_is_on_its_own(parts):
    predictor = Predictor(*parts)
    expected = predictor(unlabelled())
    copied = copy.deepcopy(predictor)
    with torch.no_grad():
        for weight in predictor.parameters():
            weight.zero_()
    assert torch.equal(copied(unlabelled()), expected)
    assert not torch.equal(predictor(unlabelled()), expected)


def test_no_samples_give_no_predictions(parts):
    assert Predictor(*parts)(unlabelled(0)).shape == (0,)


def test_ranks_come_with_the_predictions_of_nce():
    chain = make_tiny("nce")
    made = Predictor(chain, LocalRows(make_tables(chain))).everything(unlabelled())
    assert made["rank"].shape == (6,)


def test_layers_predict_whoever_set_them_to_training():
    chain = Chain([("drop", nn.Dropout(0.5)), ("loss", LogLoss())])
    predictor = Predictor(chain, LocalRows({})).train()
    logits = torch.ones(100, 1)
    predicted = predictor({"x": logits})
    assert predicted.tolist() == pytest.approx([1 / (1 + math.exp(-1))] * 100)
    stage = chain.slice(0, 0)
    chain.eval()
    made = stage({"x": logits}, context=Context(training=True))["x"]
    assert set(made.unique().tolist()) == {0.0, 2.0}
