"""A chain cut into stages computes what the whole chain computes, values and gradients."""

import itertools

import pytest
import torch

from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.local_rows import LocalRows
from heterps.models.rows import rows_of
from heterps.models.trace import trace
from heterps.models.zoo import ZOO
from heterps.testing.models import make_batch, make_tables, make_tiny, named_gradients

DOUBLE = torch.float64
CONTEXT = Context(seed=3, micro_batch=7)


class Stage:
    """A slice that gets only the names that cross the cut before it, as a worker of its own would:
    no tensor is shared with the stages around it."""

    def __init__(self, chain: Chain, found, first: int, last: int) -> None:
        self.chain = chain.slice(first, last)
        self.arriving = found.needed_after(first)
        self.returning = found.gradients_after(first)
        leaving = last + 1 < len(chain.layers)
        self.sent = found.needed_after(last + 1) if leaving else ("loss",)
        self.graded = found.gradients_after(last + 1) if leaving else ("loss",)

    def forward(self, received, source):
        assert set(received) == set(self.arriving)
        self.leaves = {name: tensor.detach().clone() for name, tensor in received.items()}
        for name in self.returning:
            self.leaves[name].requires_grad_()
        self.asked = self.chain.ask(self.leaves, source, CONTEXT)
        made = self.chain(self.leaves, rows_of(self.asked), CONTEXT)
        self.made = {name: made[name] for name in self.sent}
        return self.made

    def backward(self, grads):
        assert set(grads) == set(self.graded)
        made = [self.made[name] for name in grads]
        torch.autograd.backward(made, [grads[name] for name in grads])
        return {name: self.leaves[name].grad for name in self.returning}


def run_whole(chain, batch, source):
    chain.zero_grad()
    asked = chain.ask(batch, source, CONTEXT)
    loss = chain(batch, rows_of(asked), CONTEXT)["loss"]
    loss.backward()
    return loss.detach(), named_gradients(chain), row_gradients(asked)


def run_stages(chain, found, cuts, batch, source):
    chain.zero_grad()
    firsts = [0, *cuts]
    lasts = [*(cut - 1 for cut in cuts), len(chain.layers) - 1]
    stages = [Stage(chain, found, *ends) for ends in zip(firsts, lasts, strict=True)]
    carried = {name: batch[name] for name in found.needed_after(0)}
    for stage in stages:
        carried = stage.forward(carried, source)
    loss = carried["loss"].detach()
    grads = {"loss": torch.ones_like(loss)}
    for stage in reversed(stages):
        grads = stage.backward(grads)
    asked = {name: entry for stage in stages for name, entry in stage.asked.items()}
    return loss, named_gradients(chain), row_gradients(asked)


def row_gradients(asked):
    return {name: (entry.ids, entry.rows.values.grad) for name, entry in asked.items()}


def assert_same(one, other):
    assert one[0].item() == other[0].item()
    for name, grad in one[1].items():
        torch.testing.assert_close(grad, other[1][name], rtol=1e-12, atol=1e-14, msg=name)
    assert one[2].keys() == other[2].keys()
    for name, (ids, grad) in one[2].items():
        assert torch.equal(ids, other[2][name][0])
        torch.testing.assert_close(grad, other[2][name][1], rtol=1e-12, atol=1e-14, msg=name)


@pytest.fixture(params=sorted(ZOO), scope="module")
def model(request):
    chain = make_tiny(request.param, seed=1, dtype=DOUBLE)
    tables = make_tables(chain, dtype=DOUBLE)
    return chain, LocalRows(tables), trace(chain, sample())


def sample(samples=9):
    weight = torch.linspace(0.5, 2, samples, dtype=DOUBLE)
    return {**make_batch(samples, seed=2, dtype=DOUBLE), "weight": weight}


def test_every_cut_in_two(model):
    chain, source, found = model
    whole = run_whole(chain, sample(), source)
    assert any(grad.abs().sum() > 0 for grad in whole[1].values())
    for cut in range(1, len(chain.layers)):
        assert_same(run_stages(chain, found, [cut], sample(), source), whole)


def test_cuts_in_three(model):
    chain, source, found = model
    whole = run_whole(chain, sample(), source)
    cuts = list(itertools.combinations(range(1, len(chain.layers)), 2))
    for pair in cuts[:: max(len(cuts) // 12, 1)]:
        assert_same(run_stages(chain, found, pair, sample(), source), whole)


def test_a_stage_for_every_layer(model):
    chain, source, found = model
    whole = run_whole(chain, sample(), source)
    assert_same(run_stages(chain, found, range(1, len(chain.layers)), sample(), source), whole)


def test_no_samples_at_any_cut(model):
    chain, source, found = model
    whole = run_whole(chain, sample(0), source)
    assert whole[0].item() == 0
    assert all(grad.abs().sum() == 0 for grad in whole[1].values())
    assert all(len(ids) == 0 for ids, _ in whole[2].values())
    for cut in range(1, len(chain.layers)):
        assert_same(run_stages(chain, found, [cut], sample(0), source), whole)


def test_predictions_at_every_cut(model):
    chain, source, found = model
    context = Context(seed=3, micro_batch=7, training=False)
    batch = make_batch(9, seed=2, dtype=DOUBLE)
    del batch["label"]

    def predict(chain, batch):
        asked = chain.ask(batch, source, context)
        return chain(batch, rows_of(asked), context)

    whole = predict(chain, batch)["prediction"]
    assert whole.shape == (9,)
    for cut in range(1, len(chain.layers)):
        front = predict(chain.slice(0, cut - 1), batch)
        # Labels and weights cross a cut only where there are any.
        crossing = {name: front[name] for name in found.needed_after(cut) if name in front}
        back = predict(chain.slice(cut, len(chain.layers) - 1), crossing)
        assert torch.equal(back["prediction"], whole)
