import copy

import pytest
import torch
from torch import nn

from heterps.runtime.later import LaterGradients


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 4, bias=False), nn.Linear(4, 1))


def gradients(model):
    return {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("shape", [(7, 5), (3, 2, 5)])
def test_all_gradients_are_those_of_backward(shape):
    model, inputs = make_model().double(), torch.randn(shape, dtype=torch.float64)
    plain, later = copy.deepcopy(model), LaterGradients()
    one, other = (inputs.clone().requires_grad_() for _ in range(2))
    for _ in range(2):  # they add up
        plain(one).square().sum().backward()
        with later.taken_over():
            made = model(other).square().sum()
        made.backward()
        later.work_out()
    torch.testing.assert_close(other.grad, one.grad)
    torch.testing.assert_close(gradients(model), gradients(plain))


def test_those_of_inputs_are_there_before_those_of_weights():
    model, inputs = make_model(), torch.randn(7, 5, requires_grad=True)
    later = LaterGradients()
    with later.taken_over():
        made = model(inputs).sum()
    made.backward()
    assert inputs.grad is not None
    assert all(gradient is None for gradient in gradients(model).values())
    later.work_out()
    assert all(gradient is not None for gradient in gradients(model).values())


def test_weights_that_are_computed_have_theirs_at_once():
    weight, inputs = torch.randn(4, 5, requires_grad=True), torch.randn(7, 5)
    with LaterGradients().taken_over():
        nn.functional.linear(inputs, 2 * weight).sum().backward()
    torch.testing.assert_close(weight.grad, 2 * inputs.sum(0).expand(4, 5))


def test_a_weight_that_is_used_twice_has_both_parts():
    layer, inputs, later = nn.Linear(5, 5).double(), torch.randn(7, 5).double(), LaterGradients()
    plain = copy.deepcopy(layer)
    plain(plain(inputs)).sum().backward()
    with later.taken_over():
        made = layer(layer(inputs)).sum()
    made.backward()
    later.work_out()
    torch.testing.assert_close(gradients(layer), gradients(plain))


def test_frozen_weights_and_forward_alone_leave_nothing_due():
    model, inputs, later = make_model(), torch.randn(7, 5), LaterGradients()
    with later.taken_over(), torch.no_grad():
        model(inputs)
    for weight in model.parameters():
        weight.requires_grad_(requires_grad=False)
    with later.taken_over():
        model(inputs)
    later.work_out()
    assert all(gradient is None for gradient in gradients(model).values())
