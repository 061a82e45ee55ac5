"""Chains: what layers see, how they are cut, and what is refused."""

import pytest
import torch
from torch import nn

from heterps.errors import InputError, ModelError
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.drawing import may_draw
from heterps.models.embedding import SparseEmbedding
from heterps.models.layers import Apply, Concat, Cosine, Dropout, Layer, LogLoss, Pool
from heterps.runtime.threads import InThreads

BATCH = {"x": torch.ones(3, 2), "label": torch.tensor([0.0, 1.0, 1.0])}


class Draw(Layer):
    """Two draws: one from torch's generator, one from the layer's own."""

    def forward(self, batch, context):
        return {"drawn": torch.rand(2), "keyed": torch.rand(2, generator=context.generator())}


class Broken(Layer):
    def __init__(self, made):
        super().__init__()
        self.made = made

    def forward(self, batch, context):
        return self.made


def linear(weight, bias=0.0):
    module = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weight))
        module.bias.fill_(bias)
    return module


class TestForward:
    def test_a_plain_module_works_on_x_and_leaves_other_names(self):
        chain = Chain([("fc", linear([[1.0, 2.0]], bias=-4.0)), ("relu", nn.ReLU())])
        made = chain({"x": torch.tensor([[1.0, 2.0], [0.0, 1.0]]), "side": torch.tensor([7])})
        assert made["x"].tolist() == [[1.0], [0.0]]
        assert made["side"].tolist() == [7]

    def test_the_batch_that_was_given_stays_as_it_was(self):
        batch = dict(BATCH)
        Chain([("relu", nn.ReLU())])(batch)
        assert batch.keys() == BATCH.keys()
        assert batch["x"] is BATCH["x"]

    def test_the_context_says_if_it_is_training(self):
        chain = Chain([("loss", LogLoss())])
        batch = {"x": torch.zeros(2, 1), "label": torch.tensor([0.0, 1.0])}
        assert chain(batch, context=Context(training=True))["loss"] == pytest.approx(0.693147)
        assert not chain.eval().training
        assert "loss" in chain(batch, context=Context(training=True))
        assert chain.training
        made = chain(batch, context=Context(training=False))
        assert made["prediction"].tolist() == [0.5, 0.5]
        assert "loss" not in made

    def test_parameters_are_named_by_layer_in_a_slice_too(self):
        chain = Chain([("one", nn.Linear(2, 2)), ("relu", nn.ReLU()), ("two", nn.Linear(2, 1))])
        assert list(chain.state_dict()) == ["one.weight", "one.bias", "two.weight", "two.bias"]
        stage = chain.slice(1, 2)
        assert stage.names == ("relu", "two")
        assert list(stage.state_dict()) == ["two.weight", "two.bias"]
        assert stage.get_parameter("two.weight") is chain.get_parameter("two.weight")

    @pytest.mark.parametrize(("first", "last"), [(1, 0), (-1, 0), (0, 2)])
    def test_a_slice_beyond_the_layers_is_refused(self, first, last):
        chain = Chain([("one", nn.ReLU()), ("two", nn.ReLU())])
        with pytest.raises(InputError, match="layers 0 to 1"):
            chain.slice(first, last)


class TestDraws:
    def test_they_depend_on_seed_layer_and_micro_batch_alone(self):
        short = Chain([("a", Draw())])
        long = Chain([("before", Draw()), ("a", Draw())])
        here = Context(seed=3, micro_batch=5)
        torch.manual_seed(1)
        one = short({}, context=here)
        torch.rand(10)
        other = long({}, context=here)
        for name in ("drawn", "keyed"):
            assert one[name].tolist() == other[name].tolist()

    @pytest.mark.parametrize("other", [Context(4, 5), Context(3, 6)])
    def test_another_seed_or_micro_batch_draws_anew(self, other):
        chain = Chain([("a", Draw())])
        one, two = chain({}, context=Context(3, 5)), chain({}, context=other)
        assert one["drawn"].tolist() != two["drawn"].tolist()
        assert one["keyed"].tolist() != two["keyed"].tolist()

    def test_layers_draw_differently(self):
        chain = Chain([("a", Dropout(0.5)), ("b", Dropout(0.5))])
        x = {"x": torch.ones(1, 64)}
        one = chain.slice(0, 0)(x)["x"]
        two = chain.slice(1, 1)(x)["x"]
        assert one.tolist() != two.tolist()

    def test_torchs_own_generator_is_left_alone(self):
        torch.manual_seed(1)
        expected = torch.rand(3).tolist()
        torch.manual_seed(1)
        Chain([("drop", nn.Dropout(0.5))])(BATCH)
        assert torch.rand(3).tolist() == expected

    def test_threads_do_not_change_them(self):
        chain = Chain([("drop", Dropout(0.5)), ("plain", nn.Dropout(0.5))])
        batch = {"x": torch.ones(512, 100)}
        made = []
        for threads in (1, 2):
            with InThreads(threads):
                made.append(chain(batch)["x"])
        assert torch.equal(*made)

    def test_dropout_keeps_the_mean_and_only_acts_in_training(self):
        chain = Chain([("drop", Dropout(0.25))])
        batch = {"x": torch.ones(400, 100)}
        made = chain(batch, context=Context(training=True))["x"]
        assert made.unique().tolist() == [0.0, pytest.approx(4 / 3)]
        assert float(made.mean()) == pytest.approx(1, abs=0.02)
        assert chain(batch, context=Context(training=False))["x"] is batch["x"]


class TestLayers:
    def test_log_loss_is_the_mean_of_weight_times_loss(self):
        chain = Chain([("loss", LogLoss())])
        batch = {
            "x": torch.tensor([[0.0], [2.0]]),
            "label": torch.tensor([1.0, 0.0]),
            "weight": torch.tensor([1.0, 3.0]),
        }
        # log 2 = 0.693147 and log(1 + e²) = 2.126928
        assert float(chain(batch)["loss"]) == pytest.approx((0.693147 + 3 * 2.126928) / 2)
        del batch["weight"]
        assert float(chain(batch)["loss"]) == pytest.approx((0.693147 + 2.126928) / 2)

    def test_the_loss_of_no_samples_is_zero_and_so_are_its_gradients(self):
        chain = Chain([("fc", nn.Linear(2, 1)), ("loss", LogLoss())])
        loss = chain({"x": torch.empty(0, 2), "label": torch.empty(0)})["loss"]
        loss.backward()
        assert loss.item() == 0
        assert chain.get_parameter("fc.weight").grad.tolist() == [[0, 0]]

    def test_log_loss_wants_one_logit_a_sample(self):
        with pytest.raises(ModelError, match=r"layer 'loss': expected one logit.*\[3, 2\]"):
            Chain([("loss", LogLoss())])(BATCH)

    def test_concat_apply_and_cosine_by_hand(self):
        chain = Chain(
            [
                ("join", Concat(["a", "b"], "ab")),
                ("twice", Apply(linear([[2.0, 0.0], [0.0, 2.0]]), "ab")),
                ("match", Cosine("ab", "c", scale=10)),
            ]
        )
        batch = {"a": torch.tensor([[3.0]]), "b": torch.tensor([[4.0]])}
        made = chain({**batch, "c": torch.tensor([[1.0, 0.0]])})
        assert made["ab"].tolist() == [[6, 8]]
        assert made["x"].tolist() == [[pytest.approx(6.0)]]

    @pytest.mark.parametrize(("mode", "first"), [("sum", [4.0, 6.0]), ("mean", [2.0, 3.0])])
    def test_pool_gives_a_row_a_sample_and_zeros_for_none(self, mode, first):
        rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
        batch = {"seq": rows, "seq.offsets": torch.tensor([0, 2, 2, 3])}
        pooled = Chain([("pool", Pool("seq", mode))])(batch)["seq"]
        assert pooled.tolist() == [first, [0, 0], [5, 6]]
        pooled.sum().backward()
        share = 1.0 if mode == "sum" else 0.5
        assert rows.grad.tolist() == [[share] * 2, [share] * 2, [1, 1]]


class TestRefusals:
    def test_weights_tied_across_layers(self):
        one, two = nn.Linear(2, 2), nn.Linear(2, 2)
        two.weight = one.weight
        with pytest.raises(ModelError, match=r"layer 'b': 'weight' is also .* layer 'a'.*its own"):
            Chain([("a", one), ("b", two)])
        with pytest.raises(ModelError, match="layer 'b'"):
            Chain([("a", one), ("b", one)])
        two.weight = nn.Parameter(one.weight.detach())
        with pytest.raises(ModelError, match="layer 'b'"):
            Chain([("a", one), ("b", two)])

    def test_weights_tied_within_a_layer_and_shared_plain_modules_are_fine(self):
        pair, relu = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.ReLU()
        pair[1].weight = pair[0].weight
        chain = Chain([("pair", pair), ("a", relu), ("b", relu)])
        assert chain(BATCH)["x"].shape == (3, 2)

    def test_weights_side_by_side_in_one_buffer_are_not_tied(self):
        buffer = torch.zeros(8)
        one, two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        one.weight.data, two.weight.data = buffer[:4].view(2, 2), buffer[4:].view(2, 2)
        Chain([("a", one), ("b", two)])

    @pytest.mark.parametrize("name", ["a.b", "", "forward", "layers", "tables", "training", 3])
    def test_names_that_torch_cannot_hold(self, name):
        with pytest.raises(ModelError, match="layers"):
            Chain([(name, nn.ReLU())])

    @pytest.mark.parametrize(
        ("layers", "message"),
        [
            ([], "empty"),
            ([("a", nn.ReLU()), ("a", nn.ReLU())], r"layers\[1\]: the name 'a' stands twice"),
            ([nn.ReLU()], r"layers\[0\]: expected a pair"),
            ([("a", "relu")], r"layers\[0\]: expected a pair"),
            ([("a", nn.LazyLinear(3))], "layer 'a'.*no size yet"),
        ],
    )
    def test_lists_that_are_no_chain(self, layers, message):
        with pytest.raises(ModelError, match=message):
            Chain(layers)

    def test_two_widths_of_one_table(self):
        layers = [("a", SparseEmbedding(["C1"], 4)), ("b", SparseEmbedding(["C2"], 8))]
        with pytest.raises(ModelError, match=r"layer 'b'.*8 from table 'default'.*4"):
            Chain(layers)
        assert Chain(layers[:1]).tables == {"default": 4}

    def test_a_name_that_is_not_there(self):
        with pytest.raises(ModelError, match=r"layer 'c': reads 'dense'.*there are: label, x"):
            Chain([("c", Concat(["x", "dense"]))])(BATCH)

    def test_rows_that_were_not_asked_for(self):
        with pytest.raises(ModelError, match="layer 'e': got no rows"):
            Chain([("e", SparseEmbedding(["C1"], 4))])({"C1": torch.tensor([1])})

    @pytest.mark.parametrize(("made", "word"), [(torch.ones(1), "Tensor"), ({"x": 3}, "int")])
    def test_layers_that_return_something_else(self, made, word):
        with pytest.raises(ModelError, match=f"layer 'odd': returned {word}"):
            Chain([("odd", Broken(made))])(BATCH)

    def test_a_failing_layer_is_named(self):
        with pytest.raises(RuntimeError) as caught:
            Chain([("fc", nn.Linear(7, 1))])(BATCH)
        assert caught.value.__notes__ == ["in layer 'fc' of the model"]


@pytest.mark.parametrize(
    ("layer", "draws"),
    [
        (nn.Linear(2, 2), False),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), False),
        (nn.Dropout(0.5), True),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), True),
        (Apply(nn.Dropout(0.5), "x"), True),
        (Apply(nn.ReLU(), "x"), False),
        (Draw(), True),
    ],
)
def test_a_layer_that_is_not_known_to_be_steady_may_draw(layer, draws):
    assert may_draw(layer) == draws
