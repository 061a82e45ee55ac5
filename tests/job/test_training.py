import pytest

from heterps.errors import InputError
from heterps.job import training
from heterps.job.training import (
    ClipSpec,
    OptimizerSpec,
    ScheduleSpec,
    SnapshotSpec,
    TableEntry,
    ValidationSpec,
)
from heterps.ps import INITIALIZERS, RULES


def test_rules_initializers_and_their_options_are_those_of_the_parameter_server():
    options = {name: tuple(sorted(kind().options())) for name, kind in RULES.items()}
    assert options == {n: tuple(sorted(o)) for n, o in training.RULE_OPTIONS.items()}
    assert set(training.INITIALS) == set(INITIALIZERS)


@pytest.mark.parametrize(
    ("record", "document", "message"),
    [
        (
            TableEntry,
            {"rule": "adagrd"},
            "rule: expected sgd, adagrad, rowwise_adagrad, adam or ftrl, got 'adagrd'; "
            "did you mean 'adagrad'?",
        ),
        (
            TableEntry,
            {"options": {"beta1": 0.9}},
            "options.beta1: unknown option of rowwise_adagrad 'beta1' "
            "(known: eps, initial_accumulator)",
        ),
        (TableEntry, {"options": {"eps": -1}}, "options.eps: expected 0 or more, got -1.0"),
        (
            TableEntry,
            {"memory_gib": 0},
            "memory_gib: expected more than 0; leave it out for no bound",
        ),
        (
            OptimizerSpec,
            {"name": "sgd", "betas": [0.9, 0.99]},
            "betas: sgd has no such option (it has: momentum, weight_decay)",
        ),
        (OptimizerSpec, {"betas": [0.9, 1]}, "betas: expected shares below 1"),
        (OptimizerSpec, {"lr": -1}, "lr: expected 0 or more, got -1.0"),
        (
            ScheduleSpec,
            {"warmup": 10, "total": 10},
            "total: expected more than the warmup of 10 batches",
        ),
        (ValidationSpec, {"every": 0}, "every: expected 1 or more, got 0"),
        (
            SnapshotSpec,
            {"to": "webhdfs://me:hunter2@knox/s"},
            "to: holds a password, and would be shown in messages and kept in run folders: "
            "give that by the environment, a profile or ~/.netrc",
        ),
        (ClipSpec, {"row": 0}, "row: expected more than 0; leave it out for no clipping"),
    ],
)
def test_a_bad_setting_is_refused_by_its_path(record, document, message):
    with pytest.raises(InputError) as caught:
        record.parse(document)
    assert str(caught.value) == message


def test_an_optimizer_passes_on_what_was_said():
    spec = OptimizerSpec.parse({"name": "adamw", "betas": [0.8, 0.9], "weight_decay": 0})
    assert spec.options() == {"betas": (0.8, 0.9), "weight_decay": 0}
