"""Every plan gives the result of one process: stages, replicas and timing do not matter."""

import copy

import pytest
import torch
from torch import nn

from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.embedding import SparseEmbedding
from heterps.models.layers import Concat, Dropout, Layer, LogLoss
from heterps.models.local_rows import LocalRows, LocalTable
from heterps.ps.table import SparseTable
from heterps.runtime.collective import Alone
from heterps.runtime.dense_update import SummedUpdate
from heterps.runtime.stage import Cut, MicroBatch, Stage
from heterps.testing.in_process import InProcessPipeline
from heterps.testing.reference_loop import reference_loop

pytestmark = pytest.mark.slow  # torch
VOCABULARY = 50
TABLES = {"small": 3, "wide": 5}


def make_chain():
    """Table "small" serves two layers, and ``dense`` and ``x`` pass by layers that don't need
    them."""
    torch.manual_seed(3)
    return Chain(
        [
            ("one", SparseEmbedding(["a", "b"], 3, table="small", output="one")),
            ("two", SparseEmbedding(["c"], 5, table="wide", output="two")),
            ("join", Concat(["one", "two"])),
            ("fc", nn.Linear(11, 8)),
            ("norm", nn.LayerNorm(8)),
            ("relu", nn.ReLU()),
            ("late", SparseEmbedding(["b"], 3, table="small", output="late")),
            ("dropout", Dropout(0.3)),
            ("joinlate", Concat(["x", "late", "one", "dense"])),
            ("out", nn.Linear(19, 1)),
            ("loss", LogLoss()),
        ]
    )


def make_batches(count=4, per_batch=8):
    generator = torch.Generator().manual_seed(1)
    sizes = [(0 if (b + i) % 7 == 6 else 3 + i % 3) for b in range(count) for i in range(per_batch)]
    batches = [make_micro_batch(generator, n) for n in sizes]
    return [batches[i : i + per_batch] for i in range(0, len(batches), per_batch)]


def make_micro_batch(generator, n):
    ids = {s: torch.randint(VOCABULARY, (n,), generator=generator) for s in ("a", "b", "c")}
    label = (torch.rand(n, generator=generator) < 0.4).float()
    return {**ids, "dense": torch.rand(n, 2, generator=generator), "label": label}


def sgd(weights):
    return torch.optim.SGD(weights, lr=0.1)


def make_tables(staleness=0):
    return {
        name: SparseTable(dim, "rowwise_adagrad", lr=0.05, staleness=staleness)
        for name, dim in TABLES.items()
    }


def train(cuts, replicas, *, timing=0, staleness=0, batches=None):
    tables = make_tables(staleness)
    pipeline = InProcessPipeline(
        make_chain(), cuts, replicas, batches or make_batches(), tables, sgd,
        seed=7, staleness=staleness, timing_seed=timing,
    )  # fmt: skip
    losses = pipeline.run()
    weights = {k: v for s in range(len(replicas)) for k, v in pipeline.weights(s).items()}
    rows = {name: torch.from_numpy(t.pull(torch.arange(VOCABULARY))) for name, t in tables.items()}
    return losses, weights, rows, pipeline


@pytest.fixture(scope="module")
def reference():
    chain = make_chain()
    tables = {name: LocalTable(dim) for name, dim in TABLES.items()}
    losses = reference_loop(chain, make_batches(), tables, sgd, seed=7)
    rows = {name: table.pull(torch.arange(VOCABULARY)) for name, table in tables.items()}
    return losses, chain.state_dict(), rows


PLANS = [
    ((), (1,)),
    ((), (3,)),
    ((3,), (1, 1)),
    ((7,), (2, 3)),
    ((2, 7), (3, 2, 1)),
    ((1, 4, 8), (1, 7, 3, 2)),
    (tuple(range(1, 11)), (1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2)),
]


@pytest.mark.parametrize(("cuts", "replicas"), PLANS)
def test_every_plan_ends_where_one_process_does(reference, cuts, replicas):
    losses, weights, rows, _ = train(cuts, replicas, timing=5)
    assert losses == pytest.approx(reference[0], rel=1e-5)
    assert weights.keys() == reference[1].keys()
    for found, expected in ((weights, reference[1]), (rows, reference[2])):
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_timing_changes_no_bit(staleness):
    first, second = (
        train((2, 7), (3, 2, 1), timing=t, staleness=staleness) for t in (1, 2)
    )  # fmt: skip
    if staleness == 0:
        assert first[0] == second[0]
        for one, other in ((first[1], second[1]), (first[2], second[2])):
            assert all(torch.equal(one[name], other[name]) for name in one)
    else:
        assert first[0] == pytest.approx(second[0], rel=0.05)


def test_replicas_of_a_stage_keep_the_same_weights():
    pipeline = train((3,), (2, 3))[-1]
    for stage, replicas in enumerate((2, 3)):
        first = pipeline.weights(stage, 0)
        for replica in range(1, replicas):
            other = pipeline.weights(stage, replica)
            assert all(torch.equal(first[name], other[name]) for name in first)


def test_a_batch_goes_back_with_the_weights_of_its_own_forward():
    """Batch 1 goes forward before batch 0 is committed, and backward after it."""
    chain = Chain([("out", nn.Linear(2, 1)), ("loss", LogLoss())])
    start = nn.Linear(2, 1)
    start.load_state_dict(chain.out.state_dict())
    batches = [
        {"x": torch.tensor([[1.0, -2.0]]), "label": torch.tensor([1.0])},
        {"x": torch.tensor([[0.5, 3.0]]), "label": torch.tensor([0.0])},
    ]
    stage = Stage(chain, 0, SummedUpdate(chain, Alone(), sgd), stale=True)
    for b in range(2):
        stage.forward(MicroBatch(b, b, 1.0), batches[b], {})
    for b in range(2):
        stage.backward(b, {})
        stage.finish_backward(b)
        stage.commit(b)
    for batch in batches:
        logit = start(batch["x"])[:, 0]
        nn.functional.binary_cross_entropy_with_logits(logit, batch["label"]).backward()
    expected = start.weight - 0.1 * start.weight.grad
    torch.testing.assert_close(chain.out.weight, expected)


def test_a_commit_in_two_steps_keeps_the_gradients_of_the_batch_after_it():
    """The last stage has no copies of its weights: gradients of batch 1 come while 0 is summed."""
    found = []
    for beside in (False, True):
        torch.manual_seed(5)
        chain = Chain([("out", nn.Linear(2, 1)), ("loss", LogLoss())])
        stage = Stage(chain, 0, SummedUpdate(chain, Alone(), sgd))
        batch = {"x": torch.tensor([[1.0, -2.0]]), "label": torch.tensor([1.0])}
        through(stage, 0, batch)
        end = stage.begin_commit(0, lambda: None) if beside else lambda: None
        through(stage, 1, batch)
        end()
        stage.commit(1)
        found.append(chain.out.weight.detach())
    torch.testing.assert_close(*found)


def test_the_first_layer_of_a_stage_may_change_what_arrived():
    chain = Chain([("relu", nn.ReLU(inplace=True)), ("out", nn.Linear(2, 1)), ("loss", LogLoss())])
    stage = Stage(chain, 1, SummedUpdate(chain, Alone(), sgd), before=Cut(("x", "label"), ("x",)))
    arrived = {"x": torch.tensor([[1.0, -2.0]]), "label": torch.tensor([1.0])}
    plain = arrived["x"].clone().requires_grad_()
    nn.functional.softplus(-chain.out(plain.relu())).sum().backward()
    stage.forward(MicroBatch(0, 0, 1.0), arrived, {})
    back, _ = stage.backward(0, {})
    torch.testing.assert_close(back["x"], plain.grad)


@pytest.mark.parametrize("stale", [False, True])
def test_frozen_weights_stay_as_they_are(stale):
    chain = Chain([("fc", nn.Linear(2, 2)), ("out", nn.Linear(2, 1)), ("loss", LogLoss())])
    chain.fc.requires_grad_(False)
    update = SummedUpdate(chain, Alone(), lambda weights: torch.optim.AdamW(weights, lr=0.1))
    stage = Stage(chain, 0, update, stale=stale)
    before = {name: weight.clone() for name, weight in chain.state_dict().items()}
    through(stage, 0, {"x": torch.tensor([[1.0, -2.0]]), "label": torch.tensor([1.0])})
    stage.commit(0)
    changed = [
        name for name, weight in chain.state_dict().items() if not weight.equal(before[name])
    ]
    assert changed == ["out.weight", "out.bias"]


def through(stage, number, batch):
    stage.forward(MicroBatch(number, number, 1.0), batch, {})
    stage.backward(number, {})
    stage.finish_backward(number)


class Sometimes(Layer):
    def __init__(self, when):
        super().__init__()
        self.when = when

    def forward(self, batch, context):
        return {"aux": batch["x"].tanh()} if self.when(context) else {}


class WithAux(LogLoss):
    def forward(self, batch, context):
        x = batch["x"] + batch["aux"] if "aux" in batch else batch["x"]
        return super().forward({"x": x, "label": batch["label"]}, context)


@pytest.mark.parametrize(
    "when",
    [
        lambda context: context.training,
        lambda context: not context.training,
        lambda context: context.micro_batch % 2 == 0,
    ],
    ids=["training", "prediction", "even"],
)
def test_a_name_that_is_not_always_made_crosses_cuts_where_it_is(when):
    layers = [("fc", nn.Linear(2, 1)), ("aux", Sometimes(when)), ("pass", nn.Identity())]
    whole = Chain([*layers, ("loss", WithAux())])
    batches = [[{"x": m["dense"], "label": m["label"]} for m in batch] for batch in make_batches()]
    pipeline = InProcessPipeline(
        copy.deepcopy(whole), (2, 3), (1, 2, 1), batches, {}, sgd, seed=7
    )  # fmt: skip
    assert pipeline.run() == pytest.approx(reference_loop(whole, batches, {}, sgd, seed=7))
    torch.testing.assert_close(pipeline.weights(0), dict(whole.state_dict()))
    for number in (0, 1):
        made = batches[0][0]
        for stage in range(3):
            made = pipeline.stages[stage, 0].predict(number, made, {})
        expected = whole(batches[0][0], {}, Context(7, number, training=False))
        torch.testing.assert_close(made["prediction"], expected["prediction"].detach())


def test_predicting_leaves_no_trace():
    pipeline = train((), (1,))[-1]
    stage = pipeline.stages[0, 0]
    before = {name: value.clone() for name, value in pipeline.weights(0).items()}
    steps = {name: table.step for name, table in pipeline.tables.items()}
    batch = {k: v for k, v in make_batches()[0][0].items() if k != "label"}
    rows = LocalRows({name: LocalTable(dim) for name, dim in TABLES.items()})
    asked = stage.chain.ask(batch, rows, stage.context(0, training=False))
    made = stage.predict(0, batch, asked)
    assert ((made["prediction"] > 0) & (made["prediction"] < 1)).all()
    assert all(torch.equal(before[name], value) for name, value in pipeline.weights(0).items())
    assert steps == {name: table.step for name, table in pipeline.tables.items()}
