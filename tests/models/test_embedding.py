"""Embeddings against torch's own, values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from heterps.errors import InputError, ModelError, UnknownNameError
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.embedding import SparseEmbedding
from heterps.models.rows import Rows, rows_of

WEIGHT = torch.arange(40.0).view(10, 4).sin()


class Vocabulary:
    """Row i of ten for id i."""

    def pull(self, table, ids):
        return WEIGHT.index_select(0, ids)


def run(layer, batch):
    """What the layer makes of a batch, and the gradient of all ten rows after a backward pass
    that gives every element a weight of its own."""
    chain = Chain([("e", layer)])
    asked = chain.ask(batch, Vocabulary(), Context())
    made = chain(batch, rows_of(asked), Context())
    weighted(made["x"]).backward()
    grad = torch.zeros(10, 4).index_add(0, asked["e"].ids, asked["e"].rows.values.grad)
    return made, grad


def weighted(out):
    return (out * torch.arange(1.0, out.numel() + 1).view_as(out).cos()).sum()


def bags(*lists):
    flat = torch.tensor([i for entry in lists for i in entry], dtype=torch.int64)
    ends = torch.tensor([0, *(len(entry) for entry in lists)]).cumsum(0)
    return flat, ends


def test_single_values_stand_side_by_side_as_nn_embedding_gives_them():
    batch = {"a": torch.tensor([3, 3, 1]), "b": torch.tensor([0, 3, 9])}
    made, grad = run(SparseEmbedding(["a", "b"], 4), batch)
    table = nn.Embedding.from_pretrained(WEIGHT.clone(), freeze=False)
    expected = torch.cat([table(batch["a"]), table(batch["b"])], dim=1)
    weighted(expected).backward()
    assert made["x"].tolist() == expected.tolist()
    torch.testing.assert_close(grad, table.weight.grad)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_bags_are_pooled_as_nn_embedding_bag_does_it(pooling):
    ids, ends = bags([1, 2, 1], [], [9])
    others, other_ends = bags([5], [1, 5], [])
    batch = {"a": ids, "a.offsets": ends, "b": others, "b.offsets": other_ends}
    made, grad = run(SparseEmbedding(["a", "b"], 4, pooling=pooling), batch)
    table = nn.EmbeddingBag.from_pretrained(
        WEIGHT.clone(), freeze=False, mode=pooling, include_last_offset=True
    )
    expected = torch.cat([table(ids, ends), table(others, other_ends)], dim=1)
    weighted(expected).backward()
    torch.testing.assert_close(made["x"], expected)
    torch.testing.assert_close(grad, table.weight.grad)
    assert made["x"][1, :4].tolist() == [0] * 4


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_bags_and_single_values_mix_in_the_order_of_the_slots(pooling):
    ids, ends = bags([1, 2], [4])
    batch = {"one": torch.tensor([7, 8]), "many": ids, "many.offsets": ends}
    made, _ = run(SparseEmbedding(["many", "one"], 4, pooling=pooling), batch)
    share = 2 if pooling == "mean" else 1
    first = torch.cat([(WEIGHT[1] + WEIGHT[2]) / share, WEIGHT[7]])
    torch.testing.assert_close(made["x"], torch.stack([first, torch.cat([WEIGHT[4], WEIGHT[8]])]))


def test_each_slot_may_have_a_pooling_of_its_own():
    (ids, ends), (others, other_ends) = bags([1, 2], [4]), bags([5, 6], [])
    batch = {"a": ids, "a.offsets": ends, "b": others, "b.offsets": other_ends}
    made, grad = run(SparseEmbedding(["a", "b"], 4, pooling={"b": "mean", "c": "mean"}), batch)
    tables = [
        nn.EmbeddingBag.from_pretrained(
            WEIGHT.clone(), freeze=False, mode=mode, include_last_offset=True
        )
        for mode in ("sum", "mean")
    ]
    expected = torch.cat([tables[0](ids, ends), tables[1](others, other_ends)], dim=1)
    weighted(expected).backward()
    torch.testing.assert_close(made["x"], expected)
    torch.testing.assert_close(grad, tables[0].weight.grad + tables[1].weight.grad)
    with pytest.raises(UnknownNameError, match="pooling"):
        SparseEmbedding(["a", "b"], 4, pooling={"b": "none"})


slots = st.lists(  # None: single-valued
    st.sampled_from([None, "bags"]), min_size=1, max_size=3
)


@given(slots, st.integers(0, 5), st.sampled_from(["sum", "mean"]), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_any_mix_of_slots_is_what_torch_gives_slot_by_slot(kinds, samples, pooling, seed):
    generator = torch.Generator().manual_seed(seed)
    table = nn.EmbeddingBag.from_pretrained(
        WEIGHT.clone(), freeze=False, mode=pooling, include_last_offset=True
    )
    batch, columns = {}, []
    for number, kind in enumerate(kinds):
        lengths = torch.ones(samples, dtype=torch.int64)
        if kind == "bags":
            lengths = torch.randint(4, (samples,), generator=generator)
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        ids = torch.randint(10, (int(lengths.sum()),), generator=generator)
        batch[f"s{number}"] = ids
        if kind == "bags":
            batch[f"s{number}.offsets"] = ends
        columns.append(table(ids, ends))
    made, grad = run(
        SparseEmbedding([f"s{n}" for n in range(len(kinds))], 4, pooling=pooling), batch
    )
    expected = torch.cat(columns, dim=1)
    weighted(expected).backward()
    torch.testing.assert_close(made["x"], expected)
    torch.testing.assert_close(grad, table.weight.grad)


def test_a_row_by_hand():
    made, grad = run(SparseEmbedding(["a"], 4), {"a": torch.tensor([2, 2])})
    assert made["x"].tolist() == [WEIGHT[2].tolist()] * 2
    upstream = torch.arange(1.0, 9.0).cos()
    torch.testing.assert_close(grad[2], upstream[:4] + upstream[4:])
    assert grad[[0, 1, 3]].abs().sum() == 0


def test_without_pooling_single_values_keep_their_slots_apart():
    batch = {"a": torch.tensor([3, 3, 1]), "b": torch.tensor([0, 3, 9])}
    made, _ = run(SparseEmbedding(["a", "b"], 4, pooling="none"), batch)
    assert made["x"].shape == (3, 2, 4)
    assert made["x"][2, 1].tolist() == WEIGHT[9].tolist()


def test_without_pooling_a_bag_keeps_its_rows_and_offsets():
    ids, ends = bags([1, 2, 1], [], [9])
    layer = SparseEmbedding(["a"], 4, pooling="none")
    made, _ = run(layer, {"a": ids, "a.offsets": ends})
    assert made["x"].tolist() == WEIGHT[ids].tolist()
    assert made["x.offsets"] is ends
    many = SparseEmbedding(["a", "b"], 4, pooling="none")
    with pytest.raises(ModelError, match=r"layer 'e'.*a layer each"):
        run(many, {"a": ids, "a.offsets": ends, "b": torch.tensor([1, 2, 3])})


@pytest.mark.parametrize("pooling", ["sum", "mean", "none"])
def test_no_samples_give_no_rows(pooling):
    none = torch.empty(0, dtype=torch.int64)
    single = SparseEmbedding(["a", "b"], 4, pooling=pooling)
    made, grad = run(single, {"a": none, "b": none})
    assert made["x"].shape == ((0, 2, 4) if pooling == "none" else (0, 8))
    assert grad.abs().sum() == 0
    bag = SparseEmbedding(["a"], 4, pooling=pooling)
    made, _ = run(bag, {"a": none, "a.offsets": torch.tensor([0])})
    assert made["x"].shape == (0, 4)


def test_samples_without_any_value_give_zeros():
    none = torch.empty(0, dtype=torch.int64)
    batch = {"a": none, "a.offsets": torch.zeros(3, dtype=torch.int64)}
    made, _ = run(SparseEmbedding(["a"], 4, pooling="mean"), batch)
    assert made["x"].tolist() == [[0] * 4] * 2


def test_gradients_pass_torchs_numerical_check():
    layer = SparseEmbedding(["a", "b"], 4, pooling="mean")
    ids, ends = bags([0, 1, 0], [], [2])
    batch = {"a": ids, "a.offsets": ends, "b": torch.tensor([2, 2, 1])}
    chain = Chain([("e", layer)])
    inverse = chain.ids(batch, Context())["e"]

    def forward(values):
        return chain(batch, {"e": Rows(values, inverse)}, Context())["x"]

    values = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(forward, (values,))


def test_means_of_rows_in_double_precision_are_as_exact_as_the_rows():
    ids, ends = bags([1, 2, 5], [], [9, 1, 3, 3, 7, 0, 2], [4])
    values = torch.rand(10, 4, dtype=torch.float64, requires_grad=True)
    plain = values.detach().clone().requires_grad_()
    chain = Chain([("e", SparseEmbedding(["a"], 4, pooling="mean"))])
    made = chain({"a": ids, "a.offsets": ends}, {"e": Rows(values, ids)}, Context())["x"]
    expected = nn.functional.embedding_bag(ids, plain, ends, mode="mean", include_last_offset=True)
    torch.testing.assert_close(made, expected, rtol=1e-14, atol=0)
    weighted(made).backward()
    weighted(expected).backward()
    torch.testing.assert_close(values.grad, plain.grad, rtol=1e-14, atol=1e-15)


def test_ids_may_be_any_64_bit_number():
    ids = torch.tensor([-(2**63), 2**63 - 1, -1, -1])

    class Sign:
        def pull(self, table, ids):
            return ids.sign().float()[:, None]

    chain = Chain([("e", SparseEmbedding(["a"], 1))])
    asked = chain.ask({"a": ids}, Sign(), Context())
    assert len(asked["e"].ids) == 3
    assert chain({"a": ids}, rows_of(asked))["x"].flatten().tolist() == [-1, 1, -1, -1]


def test_rows_collect_gradients_only_in_training():
    chain = Chain([("e", SparseEmbedding(["a"], 4))])
    asked = chain.ask({"a": torch.tensor([1])}, Vocabulary(), Context(training=False))
    assert not asked["e"].rows.values.requires_grad


def test_slots_of_different_length_are_refused():
    ids, ends = bags([1], [2])
    batch = {"a": ids, "a.offsets": ends, "b": torch.tensor([1, 2, 3])}
    with pytest.raises(ModelError, match="layer 'e': slots differ in samples: a 2, b 3"):
        run(SparseEmbedding(["a", "b"], 4), batch)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slots": [], "dim": 4}, "slots: expected a list"),
        ({"slots": "C1", "dim": 4}, "slots: expected a list"),
        ({"slots": ["C1"], "dim": 0}, "dim: expected 1 or more"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        SparseEmbedding(**arguments)


def test_an_unknown_pooling_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'mean'"):
        SparseEmbedding(["C1"], 4, pooling="means")
