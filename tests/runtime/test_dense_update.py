import pytest
import torch
from torch import nn

from heterps.models.chain import Chain
from heterps.models.layers import LogLoss
from heterps.runtime.collective import Alone
from heterps.runtime.dense_update import ServerUpdate, SummedUpdate


class Scaled(nn.Module):
    """A buffer of floats, one of whole numbers and a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.tensor([4.0]))
        self.register_buffer("count", torch.tensor([3]))

    def forward(self, x):
        return x * self.weight


def make_chain():
    return Chain([("scaled", Scaled()), ("loss", LogLoss())])


def sgd(weights):
    return torch.optim.SGD(weights, lr=0.5)


def give_gradient(chain, values):
    weight = chain.scaled.weight
    weight.grad = torch.tensor(values)
    return [weight.grad]


class Doubling:
    """As if there were two replicas of the same gradients."""

    def __init__(self):
        self.given = []

    def sum(self, tensors, *, nothing=False):
        self.given = tensors
        for tensor in tensors:
            tensor *= 2


def test_a_step_takes_the_sum_over_the_replicas():
    chain = make_chain()
    update = SummedUpdate(chain, Doubling(), sgd)
    update.sum(give_gradient(chain, [0.1, 0.2]), 0.5)
    update.step(0)
    torch.testing.assert_close(chain.scaled.weight.detach(), torch.tensor([0.9, 0.8]))
    assert chain.scaled.weight.grad is None, "the next batch starts from nothing"


def test_buffers_become_their_mean_over_the_replicas():
    chain, replicas = make_chain(), Doubling()
    update = SummedUpdate(chain, replicas, sgd, count=2)
    update.sum(give_gradient(chain, [0.0, 0.0]), 0.5)
    assert chain.scaled.mean.item() == 4.0
    assert chain.scaled.count.item() == 3
    assert len(replicas.given) == 2


def test_the_learning_rate_follows_its_factor():
    chain = make_chain()
    update = SummedUpdate(chain, Alone(), sgd, factor=lambda batch: batch / 2)
    for batch, expected in ((0, 1.0), (2, 0.5), (1, 0.25)):
        update.sum(give_gradient(chain, [1.0, 1.0]), 1.0)
        update.step(batch)
        assert chain.scaled.weight[0].item() == pytest.approx(expected)


def test_a_layer_is_clipped_after_the_sum():
    chain = make_chain()
    update = SummedUpdate(chain, Doubling(), sgd, clip=1.0)
    update.sum(give_gradient(chain, [3.0, 4.0]), 1.0)
    update.step(0)
    expected = 1 - 0.5 * torch.tensor([0.6, 0.8])
    torch.testing.assert_close(chain.scaled.weight.detach(), expected, rtol=1e-4, atol=1e-4)


def test_a_stage_without_weights_has_nothing_to_do():
    chain, replicas = Chain([("relu", nn.ReLU())]), Doubling()
    update = SummedUpdate(chain, replicas, sgd, count=2)
    update.sum([], 1.0)
    update.step(0)
    assert update.optimizer is None
    assert replicas.given == []


class FakeRemote:
    """A weight on a server that learns by plain steps."""

    def __init__(self, value):
        self.value = torch.tensor(value)
        self.pushed = []

    def push(self, grads, lr=None):
        self.pushed.append((grads.tolist(), lr))
        self.value = self.value - lr * torch.from_numpy(grads)

    def pull(self, out=None):
        return self.value.numpy()


def test_a_server_gets_the_mean_gradient_over_the_replicas_own_samples():
    chain, remote = make_chain(), FakeRemote([2.0, 2.0])
    update = ServerUpdate(chain, {"scaled.weight": remote}, 0.5, factor=lambda batch: 0.1)
    assert chain.scaled.weight.tolist() == [2.0, 2.0], "it starts from what the servers have"
    update.sum(give_gradient(chain, [0.25, 0.5]), 0.25)
    update.step(0)
    assert remote.pushed == [([1.0, 2.0], pytest.approx(0.05))]
    assert chain.scaled.weight.tolist() == pytest.approx([1.95, 1.9])
    assert torch.equal(chain.scaled.weight.grad, torch.zeros(2))


def test_a_replica_without_samples_pushes_nothing_but_takes_what_others_pushed():
    chain, remote = make_chain(), FakeRemote([2.0, 2.0])
    update = ServerUpdate(chain, {"scaled.weight": remote}, 0.5)
    remote.value = torch.tensor([7.0, 8.0])
    update.sum(give_gradient(chain, [0.0, 0.0]), 0.0)
    update.step(0)
    assert remote.pushed == []
    assert chain.scaled.weight.tolist() == [7.0, 8.0]


def test_what_is_saved_is_what_all_replicas_have_made_of_it():
    chain, remote = make_chain(), FakeRemote([2.0, 2.0])
    update = ServerUpdate(chain, {"scaled.weight": remote}, 0.5)
    remote.value = torch.tensor([7.0, 8.0])
    assert update.state() == {}
    assert chain.scaled.weight.tolist() == [7.0, 8.0]


def test_what_a_replica_pushes_is_clipped():
    chain, remote = make_chain(), FakeRemote([0.0, 0.0])
    update = ServerUpdate(chain, {"scaled.weight": remote}, 1.0, clip=1.0)
    update.sum(give_gradient(chain, [3.0, 4.0]), 1.0)
    update.step(0)
    assert remote.pushed[0][0] == pytest.approx([0.6, 0.8], rel=1e-4)
