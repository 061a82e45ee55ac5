import pytest
import torch
from torch import nn

from heterps.job.training import OPTIMIZER_OPTIONS, OptimizerSpec, ScheduleSpec
from heterps.models.chain import Chain
from heterps.runtime.optimizers import (
    OPTIMIZERS,
    clip_layers,
    clip_rows,
    learning_rate_factor,
    make_optimizer,
    set_learning_rate,
    take_step,
)


def stepped(spec: OptimizerSpec, plain: bool) -> torch.Tensor:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(7, 5))
    options = spec.options()
    optimizer = (
        OPTIMIZERS[spec.name]([weight], lr=spec.lr, **options)  # type: ignore[call-arg]
        if plain
        else make_optimizer(spec, [weight])
    )
    for _ in range(5):
        weight.grad = torch.randn(7, 5)
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("name", OPTIMIZER_OPTIONS)
def test_every_optimizer_does_what_torchs_plain_one_does(name):
    options = {"momentum": 0.9, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.01}
    said = {key: value for key, value in options.items() if key in OPTIMIZER_OPTIONS[name]}
    spec = OptimizerSpec.parse({"name": name, "lr": 0.1, **said})
    torch.testing.assert_close(stepped(spec, plain=False), stepped(spec, plain=True))


def test_an_optimizer_is_fused_where_torch_has_it():
    weights = [nn.Parameter(torch.zeros(2))]
    fused = {
        name: bool(make_optimizer(OptimizerSpec(name=name), weights).defaults.get("fused"))
        for name in OPTIMIZER_OPTIONS
    }
    assert fused == {"sgd": True, "adam": True, "adamw": True, "adagrad": True, "rmsprop": False}


def test_a_learning_rate_holds_from_the_next_step_on():
    weight = nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer(OptimizerSpec(name="sgd", lr=1.0), [weight])
    weight.grad = torch.ones(1)
    optimizer.step()
    set_learning_rate(optimizer, 0.25)
    optimizer.step()
    assert weight.item() == -1.25


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ({}, [1, 1, 1, 1, 1, 1, 1]),
        ({"warmup": 2}, [0.5, 1, 1, 1, 1, 1, 1]),
        ({"kind": "linear"}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0]),
        ({"kind": "linear", "warmup": 2, "floor": 0.2}, [0.5, 1, 1, 0.8, 0.6, 0.4, 0.2]),
        ({"kind": "cosine", "total": 4}, [1, 0.8535534, 0.5, 0.1464466, 0, 0, 0]),
        ({"kind": "cosine", "warmup": 6}, [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 0]),
    ],
)
def test_a_schedule_rises_and_falls(schedule, factors):
    spec = ScheduleSpec.parse(schedule)
    assert [learning_rate_factor(spec, batch, 6) for batch in range(7)] == pytest.approx(factors)


def test_layers_are_clipped_each_by_its_own_norm():
    chain = Chain([("a", nn.Linear(2, 1)), ("relu", nn.ReLU()), ("b", nn.Linear(1, 1))])
    (a, a_bias), (b, b_bias) = (list(chain.layers[i][1].parameters()) for i in (0, 2))
    a.grad, a_bias.grad = torch.tensor([[6.0, 0.0]]), torch.tensor([8.0])
    b.grad, b_bias.grad = torch.tensor([[0.3]]), None
    clip_layers(chain, 5.0)
    torch.testing.assert_close(a.grad, torch.tensor([[3.0, 0.0]]))
    torch.testing.assert_close(a_bias.grad, torch.tensor([4.0]))
    torch.testing.assert_close(b.grad, torch.tensor([[0.3]]))


def test_rows_are_clipped_each_by_its_own_norm():
    gradients = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped = clip_rows(gradients, 1.0)
    torch.testing.assert_close(clipped, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
    assert clip_rows(torch.empty(0, 4), 1.0).shape == (0, 4)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_torchs_own(name):
    ours, theirs = ([nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3))] for _ in range(2))
    first, second = (make_optimizer(OptimizerSpec(name=name), w) for w in (ours, theirs))
    for seed in range(3):
        gradient = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))
        ours[0].grad, theirs[0].grad = gradient.clone(), gradient.clone()
        take_step(first)
        second.step()
    assert torch.equal(ours[0], theirs[0])
