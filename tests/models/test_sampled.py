"""Sampled softmax by hand, and against the whole softmax."""

import math

import pytest
import torch

from heterps.errors import InputError, ModelError, UnknownNameError
from heterps.models.chain import Chain
from heterps.models.context import Context
from heterps.models.layers import Apply
from heterps.models.rows import rows_of
from heterps.models.sampled import SampledEmbedding, SampledSoftmax, Sampler

TRAINING, PREDICTING = Context(micro_batch=1), Context(micro_batch=1, training=False)


def drawn(items):
    """A sampler's draws, set by hand."""

    class Fixed(Sampler):
        def draw(self, count, generator):
            return torch.tensor(items)[:count]

    return Fixed


class Items:
    """Item i has the row (i, 1)."""

    def pull(self, table, ids):
        return torch.stack([ids.float(), torch.ones(len(ids))], dim=1)


def run(sampler, batch, context=TRAINING, **settings):
    layers = [
        ("rows", SampledEmbedding("item", sampler, 2, **settings)),
        ("softmax", SampledSoftmax(sampler)),
    ]
    chain = Chain(layers)
    asked = chain.ask(batch, Items(), context)
    return chain(batch, rows_of(asked), context), asked["rows"]


class TestSampler:
    @pytest.mark.parametrize("distribution", ["uniform", "log_uniform"])
    def test_probabilities_sum_to_one_and_are_those_of_the_draws(self, distribution):
        sampler = Sampler(12, distribution)
        shares = sampler.log_probability(torch.arange(12)).exp()
        assert shares.sum().item() == pytest.approx(1)
        items = sampler.draw(200_000, torch.Generator().manual_seed(0))
        seen = torch.bincount(items, minlength=12) / len(items)
        assert len(seen) == 12
        torch.testing.assert_close(seen.double(), shares, atol=0.005, rtol=0)

    def test_log_uniform_by_hand(self):
        shares = Sampler(3, "log_uniform").log_probability(torch.tensor([0, 2])).exp()
        expected = [math.log(2) / math.log(4), math.log(4 / 3) / math.log(4)]
        assert shares.tolist() == pytest.approx(expected)

    def test_bad_settings_are_refused(self):
        with pytest.raises(InputError, match="vocabulary"):
            Sampler(1)
        with pytest.raises(UnknownNameError, match="did you mean 'uniform'"):
            Sampler(10, "unifrom")
        with pytest.raises(InputError, match="negatives"):
            SampledEmbedding("item", Sampler(10), 2, negatives=0)


class TestLoss:
    def test_by_hand_with_a_uniform_sampler(self):
        batch = {"x": torch.tensor([[1.0, 0.0]]), "item": torch.tensor([12])}
        made, asked = run(drawn([0, 1])(10), batch, negatives=2)
        # target 12 mod 10 scores 2, the drawn items 0 and 1
        total = math.exp(2) + math.exp(0) + math.exp(1)
        assert made["loss"].item() == pytest.approx(math.log(total) - 2)
        assert sorted(asked.ids.tolist()) == [0, 1, 2]

    def test_scores_are_corrected_by_how_likely_a_draw_was(self):
        batch = {"x": torch.tensor([[1.0, 0.0]]), "item": torch.tensor([1])}
        sampler = drawn([0])(3, "log_uniform")
        made, _ = run(sampler, batch, negatives=1)
        q0, q1 = (math.log((k + 2) / (k + 1)) / math.log(4) for k in (0, 1))
        target, other = 1 - math.log(q1), 0 - math.log(q0)
        expected = math.log(math.exp(target) + math.exp(other)) - target
        assert made["loss"].item() == pytest.approx(expected)

    def test_drawing_the_target_itself_counts_for_nothing(self):
        batch = {"x": torch.tensor([[1.0, 0.0]]), "item": torch.tensor([3])}
        with_hit, _ = run(drawn([3, 1])(10), batch, negatives=2)
        without, _ = run(drawn([1])(10), batch, negatives=1)
        assert with_hit["loss"].item() == pytest.approx(without["loss"].item())
        only, asked = run(drawn([3])(10), batch, negatives=1)
        assert only["loss"].item() == 0
        only["loss"].backward()
        assert asked.rows.values.grad.tolist() == [[0, 0]]

    @pytest.mark.parametrize("distribution", ["uniform", "log_uniform"])
    def test_with_many_draws_it_nears_the_whole_softmax(self, distribution):
        x = torch.tensor([[0.3, 0.0], [-0.4, 0.0]])
        batch = {"x": x, "item": torch.tensor([2, 5])}
        sampler = Sampler(8, distribution)
        made, _ = run(sampler, batch, negatives=200_000)
        scores = x @ Items().pull("", torch.arange(8)).T
        # Corrected draws sum to 200,000 times the sum over all items but the target, beside which
        # the target's own term is nothing; its correction, q, stays.
        others = scores.masked_fill(torch.nn.functional.one_hot(batch["item"], 8).bool(), -math.inf)
        expected = torch.logsumexp(others, 1) - scores.gather(1, batch["item"][:, None])[:, 0]
        q = sampler.log_probability(batch["item"])
        assert made["loss"].item() == pytest.approx(
            (expected + math.log(200_000) + q).mean().item(), abs=0.02
        )


class TestPrediction:
    def test_rank_counts_the_candidates_that_score_as_high(self):
        batch = {"x": torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), "item": torch.tensor([4, 4])}
        made, _ = run(drawn([1, 4, 5, 9, 2])(10), batch, PREDICTING, candidates=5)
        assert made["rank"].tolist() == [2, 2]
        assert made["prediction"][0].item() == pytest.approx(
            math.exp(4) / sum(math.exp(k) for k in (4, 1, 5, 9, 2)), rel=1e-5
        )
        assert "loss" not in made

    def test_equal_scores_rank_last(self):
        batch = {"x": torch.zeros(1, 2), "item": torch.tensor([4])}
        made, _ = run(drawn([1, 2, 3])(10), batch, PREDICTING, candidates=3)
        assert made["rank"].tolist() == [3]


def test_no_samples_ask_for_nothing():
    batch = {"x": torch.empty(0, 2), "item": torch.empty(0, dtype=torch.int64)}
    made, asked = run(Sampler(10), batch)
    assert made["loss"].item() == 0
    assert len(asked.ids) == 0
    made, _ = run(Sampler(10), batch, PREDICTING)
    assert made["prediction"].shape == made["rank"].shape == (0,)


def test_draws_differ_between_micro_batches_and_agree_between_ids_and_forward():
    layer = SampledEmbedding("item", Sampler(10**6), 2, negatives=5)
    chain = Chain([("rows", layer), ("project", Apply(torch.nn.Identity(), "drawn.rows"))])
    batch = {"item": torch.tensor([4])}
    seen = []
    for number in range(2):
        context = Context(micro_batch=number)
        asked = chain.ask(batch, Items(), context)
        made = chain(batch, rows_of(asked), context)
        assert made["drawn.rows"][:, 0].tolist() == made["drawn.item"].float().tolist()
        seen.append(made["drawn.item"].tolist())
    assert seen[0] != seen[1]


def test_a_target_with_several_values_is_refused():
    batch = {
        "x": torch.zeros(1, 2),
        "item": torch.tensor([1, 2]),
        "item.offsets": torch.tensor([0, 2]),
    }
    with pytest.raises(ModelError, match="layer 'rows': slot 'item' has several values"):
        run(Sampler(10), batch)
