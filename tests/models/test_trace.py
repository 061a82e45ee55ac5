"""Figures of traced layers, worked out by hand."""

import pytest
import torch
from torch import nn

from heterps.errors import InputError, ModelError
from heterps.models.chain import Chain
from heterps.models.embedding import SparseEmbedding
from heterps.models.kinds import kind_of
from heterps.models.layers import Apply, Concat, Dropout, Layer, LogLoss
from heterps.models.trace import trace
from heterps.planning.policy.features import KINDS

# 4 samples; slot a has 3 distinct ids, slot b 2
BATCH = {
    "dense": torch.rand(4, 3),
    "a": torch.tensor([1, 2, 1, 3]),
    "b": torch.tensor([5, 5, 6, 6]),
    "unused": torch.rand(4, 9),
    "label": torch.tensor([0.0, 1.0, 0.0, 1.0]),
}


class Skip(Layer):
    """Reads a name from far before it."""

    def forward(self, batch, context):
        return {"x": batch["x"] + batch["far"]}


class Everything(Layer):
    def forward(self, batch, context):
        return {**batch, "x": batch["x"] * 2}


class Ask(SparseEmbedding):
    """Asks for ids that a layer before it made."""

    def __init__(self):
        super().__init__(["made"], 2)


class Fold(Layer):
    """Overwrites a name of the data."""

    def forward(self, batch, context):
        return {"a": batch["a"] % 2}


def small_chain():
    return Chain(
        [
            ("embedding", SparseEmbedding(["a", "b"], 2)),
            ("join", Concat(["x", "dense"])),
            ("fc", nn.Linear(7, 5)),
            ("relu", nn.ReLU()),
            ("out", nn.Linear(5, 1)),
            ("loss", LogLoss()),
        ]
    )


def test_the_figures_of_a_small_model():
    found = trace(small_chain(), BATCH, {"default": 1000})
    assert [layer.name for layer in found.layers] == list(small_chain().names)
    kinds = [layer.kind for layer in found.layers]
    assert kinds == ["embedding", "concat", "fc", "relu", "fc", "loss"]
    # two ids of 8 bytes, 3 dense numbers and the label; then x is 4, 7, 5, 5, 1 numbers wide
    assert [layer.input_bytes for layer in found.layers] == [
        2 * 8 + 3 * 4 + 4,
        4 * 4 + 3 * 4 + 4,
        7 * 4 + 4,
        5 * 4 + 4,
        5 * 4 + 4,
        4 + 4,
    ]
    assert [layer.weight_bytes for layer in found.layers] == [1000, 0, 40 * 4, 0, 6 * 4, 0]
    # the loss makes a prediction a sample, and one number of 4 samples
    assert [layer.flops for layer in found.layers] == [4, 7, 2 * 35 + 5, 5, 2 * 5 + 1, 1.25]
    embedding = found.layers[0]
    assert embedding.table == "default"
    assert embedding.row_bytes == 5 * 2 * 4 / 4
    assert found.layers[2].table is None
    assert found.warnings == ()


def test_names_read_and_made():
    found = trace(small_chain(), BATCH)
    assert [layer.reads for layer in found.layers] == [
        ("a", "b"),
        ("dense", "x"),
        ("x",),
        ("x",),
        ("x",),
        ("label", "x"),
    ]
    assert found.layers[0].writes == ("x",)
    assert found.layers[-1].writes == ("loss", "prediction")


def test_what_crosses_a_cut_and_what_comes_back():
    found = trace(small_chain(), BATCH)
    assert found.needed_after("embedding") == ("a", "b", "dense", "label")
    assert found.needed_after("join") == ("dense", "label", "x")
    assert found.needed_after(2) == found.needed_after("fc") == ("label", "x")
    assert found.gradients_after("embedding") == ()
    assert found.gradients_after("join") == ("x",)
    assert found.gradients_after("loss") == ("x",)


def test_a_name_for_a_late_layer_crosses_every_cut_before_it_and_none_after():
    chain = Chain(
        [
            ("first", Apply(nn.Linear(2, 2), "far")),
            ("fc", nn.Linear(2, 2)),
            ("skip", Skip()),
            ("out", nn.Linear(2, 1)),
            ("loss", LogLoss()),
        ]
    )
    batch = {"x": torch.rand(3, 2), "far": torch.rand(3, 2), "label": torch.zeros(3)}
    found = trace(chain, batch)
    assert found.needed_after("fc") == ("far", "label", "x")
    assert found.gradients_after("fc") == ("far",)  # x is still what the data gave
    assert found.gradients_after("skip") == ("far", "x")
    assert found.needed_after("out") == ("label", "x")


def test_weights_of_samples_are_needed_where_there_are_any():
    found = trace(small_chain(), {**BATCH, "weight": torch.ones(4)})
    assert found.needed_after("loss") == ("label", "weight", "x")


def test_what_is_measured_by_crosses_to_a_last_layer_that_does_not_read_it():
    class Own(Layer):
        def forward(self, batch, context):
            chance = batch["x"][:, 0].sigmoid()
            return {"loss": chance.sum()} if context.training else {"prediction": chance}

    chain = Chain([("fc", nn.Linear(3, 1)), ("relu", nn.ReLU()), ("own", Own())])
    batch = {"x": torch.rand(4, 3), "label": torch.zeros(4), "weight": torch.ones(4)}
    assert trace(chain, batch).needed_after("relu") == ("x",)
    found = trace(chain, batch, measured=("prediction", "label", "weight"))
    assert found.needed_after("relu") == found.needed_after("own") == ("label", "weight", "x")
    assert found.gradients_after("own") == ("x",)
    assert found.layers[2].input_bytes == 3 * 4


def test_bags_cross_with_their_offsets():
    chain = Chain([("e", SparseEmbedding(["a"], 2)), ("out", nn.Linear(2, 1)), ("loss", LogLoss())])
    batch = {
        "label": torch.zeros(2),
        "a": torch.tensor([1, 2, 3]),
        "a.offsets": torch.tensor([0, 1, 3]),
    }
    found = trace(chain, batch)
    assert found.needed_after(0) == ("a", "a.offsets", "label")
    assert found.layers[0].input_bytes == (3 * 8 + 3 * 8 + 2 * 4) / 2


def test_a_layer_that_returns_all_it_got_reads_all():
    chain = Chain([("all", Everything()), ("out", nn.Linear(2, 1)), ("loss", LogLoss())])
    batch = {"x": torch.rand(3, 2), "side": torch.rand(3, 2), "label": torch.zeros(3)}
    assert trace(chain, batch).layers[0].reads == ("label", "side", "x")


def test_the_chain_is_left_as_it_was():
    chain = Chain([("norm", nn.BatchNorm1d(3)), ("out", nn.Linear(3, 1)), ("loss", LogLoss())])
    before = {name: value.clone() for name, value in chain.state_dict().items()}
    chain.eval()
    trace(chain, {"x": torch.rand(8, 3), "label": torch.zeros(8)})
    assert not chain.training
    for name, value in chain.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(parameter.grad is None for parameter in chain.parameters())


def test_batch_statistics_are_warned_about():
    chain = Chain(
        [("norm", nn.Sequential(nn.BatchNorm1d(3))), ("out", nn.Linear(3, 1)), ("loss", LogLoss())]
    )
    (warning,) = trace(chain, {"x": torch.rand(8, 3), "label": torch.zeros(8)}).warnings
    assert warning.startswith("layer 'norm': batch statistics")
    assert "nn.LayerNorm" in warning


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        (nn.Linear(2, 2), "fc"),
        (nn.Sigmoid(), "relu"),
        (nn.LayerNorm(2), "norm"),
        (nn.BatchNorm1d(2), "norm"),
        (nn.MultiheadAttention(2, 1), "attention"),
        (nn.AvgPool1d(2), "pool"),
        (nn.Dropout(), "dropout"),
        (Dropout(), "dropout"),
        (nn.Softmax(dim=1), "softmax"),
        (nn.CosineSimilarity(), "cosine"),
        (SparseEmbedding(["a"], 2), "embedding"),
        (LogLoss(), "loss"),
        (Apply(nn.ReLU(), "a"), "relu"),
        (nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), "fc"),
        (nn.Sequential(nn.ReLU()), "relu"),
        (nn.Identity(), "other"),
        (Skip(), "other"),
    ],
)
def test_kinds_are_told_from_the_module(module, kind):
    assert kind_of(module) == kind
    assert kind in (*KINDS, "other")  # the planner's words


class TestRefusals:
    def test_a_chain_without_a_loss(self):
        chain = Chain([("out", nn.Linear(2, 1))])
        with pytest.raises(ModelError, match="layer 'out': the last layer has to make 'loss'"):
            trace(chain, {"x": torch.rand(3, 2)})

    def test_a_loss_that_nothing_can_change(self):
        with pytest.raises(ModelError, match="depends on weights or rows"):
            trace(Chain([("loss", LogLoss())]), {"x": torch.rand(3, 1), "label": torch.zeros(3)})

    def test_predictions_of_a_known_task_that_are_no_list(self):
        class Wide(LogLoss):
            def forward(self, batch, context):
                made = super().forward(batch, context)
                return {**made, "prediction": made["prediction"][:, None]}

        chain = Chain([("out", nn.Linear(3, 1)), ("loss", Wide())])
        with pytest.raises(ModelError, match=r"layer 'loss'.*\[samples\], got \[4, 1\].*squeeze"):
            trace(chain, {"x": torch.ones(4, 3), "label": torch.ones(4)})

    def test_a_layer_that_fails_is_named_in_one_line(self):
        chain = Chain([("fc", nn.Linear(9, 1)), ("loss", LogLoss())])
        with pytest.raises(
            ModelError, match=r"layer 'fc': failed .*: RuntimeError: mat1"
        ) as caught:
            trace(chain, {"x": torch.rand(3, 2), "label": torch.zeros(3)})
        assert "\n" not in str(caught.value)

    def test_ids_that_are_not_in_the_data(self):
        class Make(Layer):
            def forward(self, batch, context):
                return {"made": torch.zeros(3, dtype=torch.int64)}

        chain = Chain([("make", Make()), ("late", Ask()), ("loss", LogLoss())])
        with pytest.raises(ModelError, match="layer 'late': reads 'made'"):
            trace(chain, {"label": torch.zeros(3)})

    def test_ids_that_a_layer_makes_anew(self):
        chain = Chain(
            [("fold", Fold()), ("rows", SparseEmbedding(["a"], 1)), ("loss", LogLoss())],
        )
        with pytest.raises(ModelError, match="layer 'rows': its ids are asked for by 'a'"):
            trace(chain, BATCH)

    def test_an_empty_batch(self):
        with pytest.raises(ModelError, match="batch: is empty"):
            trace(small_chain(), {name: tensor[:0] for name, tensor in BATCH.items()})
        with pytest.raises(ModelError, match="without a single tensor"):
            trace(small_chain(), {})

    @pytest.mark.parametrize("cut", [6, -1, "fly"])
    def test_a_cut_that_is_not_there(self, cut):
        with pytest.raises(InputError, match="cut: expected one of the layers embedding, join"):
            trace(small_chain(), BATCH).needed_after(cut)
