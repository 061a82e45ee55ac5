import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from heterps.models.chain import Chain
from heterps.models.layers import Layer, LogLoss
from heterps.runtime import products
from heterps.runtime.collective import Alone
from heterps.runtime.dense_update import SummedUpdate
from heterps.runtime.stage import Cut, MicroBatch, Stage
from heterps.runtime.threads import InThreads, Threads


@pytest.fixture(autouse=True)
def two_threads():
    with InThreads(2):
        yield


class Own(Layer):
    def forward(self, batch, context):
        return {"x": batch["x"] @ batch["x"].t()}


def make_chain(width=128, *others):
    torch.manual_seed(0)
    named = [(f"other{number}", layer) for number, layer in enumerate(others)]
    layers = [("fc", nn.Linear(width, width)), ("relu", nn.ReLU()), *named]
    return Chain([*layers, ("out", nn.Linear(width, 1)), ("loss", LogLoss())])


def in_stage(threads):
    with threads.stage:
        return torch.get_num_threads()


def test_a_stage_of_little_but_products_computes_with_one_thread():
    assert in_stage(Threads.of(make_chain(), 256, 2)) == 1
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("chain", "samples"),
    [
        (make_chain(), 65536),
        (make_chain(128, Own()), 256),
        (make_chain(128, nn.Softmax(1)), 256),
        (make_chain(128, nn.Sequential(nn.ReLU(), nn.Bilinear(2, 2, 2))), 256),
        (make_chain(128, nn.Linear(128, 128).requires_grad_(False)), 256),
        (make_chain().slice(1, 1), 256),
    ],
    ids=["large", "own layer", "softmax", "bilinear", "frozen", "unknown"],
)
def test_all_is_left_to_torch_where_other_work_may_be_large(chain, samples):
    assert in_stage(Threads.of(chain, samples, 2)) == 2


def test_all_is_left_to_torch_where_samples_may_have_many_ids():
    assert in_stage(Threads.of(make_chain(), 256, 2, bags=True)) == 2


def test_large_products_are_shared_out_and_small_ones_are_not():
    threads = Threads.of(make_chain(), 256, 2)
    seen = []
    with threads.stage:
        for weight in (torch.empty(128, 128), torch.empty(1, 128)):
            with threads.product(256, weight):
                seen.append(torch.get_num_threads())
        assert torch.get_num_threads() == 1
    assert seen == [2, 1]


def test_steps_of_few_weights_are_made_by_one_thread():
    found = []
    for width in (128, 1025):
        with Threads.of(make_chain(width), 65536, 2).step:
            found.append(torch.get_num_threads())
    assert found == [1, 2]


class Seen(TorchDispatchMode):
    """How many threads each operation of torch has."""

    def __init__(self):
        super().__init__()
        self.of = {}

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        name = operation.overloadpacket.__name__
        self.of.setdefault(name, set()).add(torch.get_num_threads())
        return operation(*given, **(named or {}))


def trained(chain, threads, batch):
    update = SummedUpdate(chain, Alone(), lambda weights: torch.optim.SGD(weights, lr=0.1))
    stage = Stage(chain, 0, update, before=Cut(("x", "label"), ("x",)), threads=threads)
    seen = []
    for work in (
        lambda: stage.forward(MicroBatch(0, 0, 1.0), batch, {}),
        lambda: stage.backward(0, {}),
        lambda: stage.finish_backward(0),
        lambda: stage.commit(0),
    ):
        with Seen() as each:
            work()
        seen.append(each.of)
    return seen


def test_a_stage_trains_alike_and_shares_out_its_large_products_alone(monkeypatch):
    monkeypatch.setattr(products, "is_quicker", lambda: False)  # under torch's names on any machine
    chains = [make_chain(), make_chain()]
    batch = {"x": torch.randn(512, 128), "label": torch.ones(512)}
    trained(chains[0], None, batch)
    forward, backward, weights, step = trained(chains[1], Threads.of(chains[1], 512, 2), batch)
    # Of the two linear layers one has a single output.
    assert (forward["addmm"], forward["relu"]) == ({1, 2}, {1})
    assert (backward["mm"], backward["threshold_backward"]) == ({1, 2}, {1})
    assert (weights["mm"], weights["sum"]) == ({1, 2}, {1})
    assert set.union(*step.values()) == {1}
    assert torch.get_num_threads() == 2
    torch.testing.assert_close(chains[1].state_dict(), chains[0].state_dict())


def test_the_number_of_threads_is_as_before_when_a_layer_fails():
    chain = make_chain()
    update = SummedUpdate(chain, Alone(), lambda weights: torch.optim.SGD(weights, lr=0.1))
    stage = Stage(chain, 0, update, threads=Threads(2, stage=1))
    with pytest.raises(RuntimeError):
        stage.forward(MicroBatch(0, 0, 1.0), {"x": torch.ones(2, 3)}, {})
    assert torch.get_num_threads() == 2
