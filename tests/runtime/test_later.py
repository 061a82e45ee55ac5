import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from heterps.runtime.later import LaterGradients


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 4, bias=False), nn.Linear(4, 1))


def gradients(model):
    return {name: weight.grad for name, weight in model.named_parameters()}


def trained(model, later, loss):
    """Forward, backward and the rest, as a stage does it."""
    with later.taken_over():
        made = loss()
    with later.waiting(0):
        made.backward()
    later.work_out(0)
    later.settle(model.parameters())


@pytest.mark.parametrize("shape", [(7, 5), (3, 2, 5)])
def test_all_gradients_are_those_of_backward(shape):
    model, inputs = make_model().double(), torch.randn(shape, dtype=torch.float64)
    plain, later = copy.deepcopy(model), LaterGradients(model)
    one, other = (inputs.clone().requires_grad_() for _ in range(2))
    for _ in range(2):  # they add up
        plain(one).square().sum().backward()
        trained(model, later, lambda: model(other).square().sum())
    torch.testing.assert_close(other.grad, one.grad)
    torch.testing.assert_close(gradients(model), gradients(plain))


def test_those_of_inputs_are_there_before_those_of_weights():
    model, inputs = make_model(), torch.randn(7, 5, requires_grad=True)
    later = LaterGradients(model)
    with later.taken_over():
        made = model(inputs).sum()
    with later.waiting(0):
        made.backward()
    assert inputs.grad is not None
    assert all(gradient is None for gradient in gradients(model).values())
    later.work_out(0)
    later.settle(model.parameters())
    assert all(gradient is not None for gradient in gradients(model).values())


def test_weights_that_are_computed_have_theirs_at_once():
    layer, inputs = weight_norm(nn.Linear(5, 4)), torch.randn(7, 5)
    later, plain = LaterGradients(layer), copy.deepcopy(layer)
    plain(inputs).square().sum().backward()
    with later.taken_over(), later.waiting(0):
        layer(inputs).square().sum().backward()
    torch.testing.assert_close(gradients(layer), gradients(plain))


def test_a_forward_of_ones_own_is_called_and_afterwards_all_is_as_it_was():
    layer, own = nn.Linear(5, 4), nn.Linear(5, 4)
    own.forward = lambda inputs: inputs
    before = dict(layer.__dict__)
    with LaterGradients(nn.ModuleList([layer, own])).taken_over():
        assert own(7) == 7
    assert layer.__dict__ == before


def test_a_weight_that_is_used_twice_has_both_parts():
    layer, inputs = nn.Linear(5, 5).double(), torch.randn(7, 5).double()
    plain, later = copy.deepcopy(layer), LaterGradients(layer)
    plain(plain(inputs)).sum().backward()
    trained(layer, later, lambda: layer(layer(inputs)).sum())
    torch.testing.assert_close(gradients(layer), gradients(plain))


def test_frozen_weights_stay_without():
    model, inputs = make_model(), torch.randn(7, 5, requires_grad=True)
    for weight in model.parameters():
        weight.requires_grad_(requires_grad=False)
    trained(model, LaterGradients(model), lambda: model(inputs).sum())
    assert inputs.grad is not None
    assert all(gradient is None for gradient in gradients(model).values())


def perturbed(model, inputs):
    """As models do that are trained against what would mislead them most."""
    inputs = inputs.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(inputs).square().sum(), inputs)
    return model(inputs + slope).square().sum()


def penalised(model, inputs):
    inputs = inputs.detach().requires_grad_()
    made = model(inputs).square().sum()
    (slope,) = torch.autograd.grad(made, inputs, create_graph=True)
    return made + slope.square().sum()


def penalised_weights(model, inputs):
    inputs = inputs.detach().requires_grad_()
    made = model(inputs).square().sum()
    (slope,) = torch.autograd.grad(made, model[2].weight, create_graph=True)
    return made + slope.square().sum()


def checkpointed(model, inputs):
    return checkpoint(model, inputs, use_reentrant=False).square().sum()


def narrow(model, inputs):
    with torch.autocast("cpu", torch.bfloat16):
        return model(inputs.requires_grad_()).float().square().sum()


def mapped(model, inputs):
    return torch.vmap(model)(inputs).square().sum()


@pytest.mark.parametrize(
    "loss", [perturbed, penalised, penalised_weights, checkpointed, narrow, mapped]
)
def test_whatever_else_a_model_does_with_its_layers_stays_as_it_is(loss):
    model, inputs = make_model(), torch.randn(7, 5)
    plain, later = copy.deepcopy(model), LaterGradients(model)
    loss(plain, inputs.clone()).backward()
    trained(model, later, lambda: loss(model, inputs.clone()))
    torch.testing.assert_close(gradients(model), gradients(plain))


def test_hooks_on_weights_are_called():
    model, called = make_model(), []
    model[0].weight.register_hook(lambda gradient: called.append("one"))
    model[2].weight.register_post_accumulate_grad_hook(lambda weight: called.append("other"))
    trained(model, LaterGradients(model), lambda: model(torch.randn(7, 5)).sum())
    assert sorted(called) == ["one", "other"]


@pytest.mark.parametrize("shape", [(7, 5), (3, 2, 5), (2, 3, 2, 5), (5,)])
def test_what_a_layer_gave_can_be_changed_in_place(shape):
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)).double()
    inputs, plain, later = torch.randn(shape).double(), copy.deepcopy(model), LaterGradients(model)
    plain(inputs).square().sum().backward()
    trained(model, later, lambda: model(inputs).square().sum())
    torch.testing.assert_close(gradients(model), gradients(plain))


def test_what_is_left_to_make_builds_no_graph():
    model = make_model()
    trained(
        model, LaterGradients(model), lambda: model(torch.randn(7, 5, requires_grad=True)).sum()
    )
    assert not any(weight.grad.requires_grad for weight in model.parameters())


class Keeping(nn.Module):
    """Gives its layer a part of what it keeps: a weight, or something that each forward changes."""

    def __init__(self, what):
        super().__init__()
        self.fc, self.what = nn.Linear(5, 4), what
        self.queries = nn.Parameter(torch.ones(3, 5))
        self.register_buffer("scratch", torch.zeros(3, 5))
        self.hidden = torch.zeros(3, 5)

    def forward(self, inputs):
        if self.what == "queries":
            return self.fc(self.queries[None]) * inputs.sum()
        kept = getattr(self, self.what)
        return self.fc(kept.copy_(inputs))


def gone_back(model, later, numbers):
    """The gradients of weights wait for the last of them."""
    for number in numbers:
        with later.taken_over():
            made = model(torch.full((3, 5), number + 1.0)).sum()
        with later.waiting(number):
            made.backward()
    for number in numbers:
        later.work_out(number)
    later.settle(model.parameters())


@pytest.mark.parametrize("what", ["queries", "scratch"])
def test_what_the_model_keeps_and_may_change_is_not_waited_with(what):
    model = Keeping(what)
    plain = copy.deepcopy(model)
    gone_back(model, LaterGradients(model), range(2))
    for number in range(2):
        plain(torch.full((3, 5), number + 1.0)).sum().backward()
    torch.testing.assert_close(gradients(model), gradients(plain))


def test_a_change_that_nobody_could_know_of_is_an_error():
    with pytest.raises(RuntimeError, match=r"changed in place.*\.clone\(\)"):
        gone_back(model := Keeping("hidden"), LaterGradients(model), range(2))


def test_when_gradients_are_made_changes_no_bit():
    """Of a weight that something else looks at too, whose part is there at once."""
    found = []
    for waits in (False, True):
        torch.manual_seed(3)
        layer = nn.Linear(5, 4)
        later, inputs = LaterGradients(layer), torch.randn(4, 7, 5)
        for number, given in enumerate(inputs):
            with later.taken_over():
                made = layer(given).square().sum() + 0.3 * layer.weight.square().sum()
            with later.waiting(number):
                made.backward()
            if not waits:
                later.work_out(number)
        for number in range(len(inputs)):
            later.work_out(number)
        later.settle(layer.parameters())
        found.append(gradients(layer))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_layer_is_called_as_torch_calls_it():
    layer = nn.Linear(5, 4)
    trained(layer, LaterGradients(layer), lambda: layer(input=torch.ones(2, 5)).sum())
    assert layer.weight.grad.sum() == 40


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(("given", "made"), [(0, 4), (5, 0)])
def test_a_layer_of_nothing_is_none_to_fail_at(given, made):
    layer = nn.Linear(given, made)
    trained(layer, LaterGradients(layer), lambda: layer(torch.ones(2, given)).sum())
    assert layer.weight.grad.shape == (made, given)
