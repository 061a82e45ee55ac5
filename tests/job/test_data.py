from pathlib import Path

import pytest

from heterps.errors import InputError
from heterps.job.data import DataSpec, SparseSlot
from heterps.job.load import read_document


def parse(**changes: object) -> DataSpec:
    document = {"train": "d/*.parquet", "dense": ["I1"], "sparse": ["C1"], **changes}
    return DataSpec.parse(document, "data")


def test_a_plain_section_gets_its_defaults():
    spec = parse(label="click")
    assert spec.train == ("d/*.parquet",)
    assert spec.sparse == (SparseSlot(name="C1"),)
    assert (spec.transform, spec.weight, spec.validation, spec.fraction) == (
        *("log1p", None, None),
        None,
    )
    assert spec.column_paths() == {"click": "label", "I1": "dense[0]", "C1": "sparse[0]"}
    assert list(spec.column_paths(labels=False)) == ["I1", "C1"]


def test_lists_fractions_and_multi_hot_slots():
    spec = parse(
        train=["a.tsv", "b.tsv"],
        validation=0.1,
        sparse=["C1", {"name": "tags", "multi": True, "pooling": "mean"}],
    )
    assert spec.train == ("a.tsv", "b.tsv")
    assert spec.fraction == 0.1
    assert spec.sparse[1] == SparseSlot(name="tags", multi=True, pooling="mean")
    assert parse(validation="v/").validation == ("v/",)


def test_the_document_reads_back():
    spec = parse(validation=0.25, sparse=["C1", {"name": "t", "multi": True}])
    assert DataSpec.parse(spec.as_document()) == spec


def test_follow_is_a_flag_or_more():
    assert parse(follow=False).follow is None
    assert parse(train="in", follow=True).follow.idle_s is None
    spec = parse(train="in", follow={"idle_s": 60})
    assert DataSpec.parse(spec.as_document()) == spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": 3}, "data.train: expected a path, a pattern or a list of them, got 3"),
        ({"train": ["a", 3]}, "data.train[1]: expected a path or a pattern, got 3"),
        ({"train": []}, "data.train: expected a path, a pattern or a list of them, got []"),
        (
            {"validation": 1},
            "data.validation: expected a fraction between 0 and 1, or a path, got 1",
        ),
        ({"dense": ["a", "a"]}, "data.dense[1]: column 'a' stands twice"),
        ({"sparse": ["a", "a"]}, "data.sparse[1]: column 'a' stands twice"),
        ({"sparse": [3]}, "data.sparse[0].name: expected a non-empty text, got 3"),
        (
            {"sparse": ["label"], "label": "y"},
            "data.sparse[0]: a slot cannot be called 'label': rename the column",
        ),
        (
            {"sparse": [{"name": "t", "multi": "yes"}]},
            "data.sparse[0].multi: expected true or false, got 'yes'",
        ),
        ({"transform": "log"}, "data.transform: expected log1p or none, got 'log'"),
        (
            {"dense": [], "sparse": []},
            "data: names no input: list columns under dense or sparse",
        ),
        ({"label": "I1"}, "data: column 'I1' is the label and an input at once"),
        ({"labels": "I1"}, "did you mean 'label'?"),
        ({"follow": True}, "data.train: follow needs one folder, without a pattern"),
        (
            {"follow": True, "train": "in", "validation": 0.1},
            "data.validation: follow leaves no share of the samples aside",
        ),
        ({"follow": 3, "train": "in"}, "data.follow: expected a mapping, got 3"),
    ],
)
def test_a_bad_field_is_named(changes: dict[str, object], message: str):
    with pytest.raises(InputError) as caught:
        parse(**changes)
    assert message in str(caught.value)


def test_the_example_that_follows_is_sound():
    example = Path(__file__).parents[2] / "examples" / "data" / "follow.yaml"
    assert DataSpec.parse(read_document(example)["data"], "data").follow is not None


def test_the_example_section_is_sound():
    example = Path(__file__).parents[2] / "examples" / "data" / "columns.yaml"
    spec = DataSpec.parse(read_document(example)["data"], "data")
    assert spec.fraction == 0.1
    assert [slot.space for slot in spec.sparse] == [None, None, None, "item", None]
    assert not spec.sparse[-1].hash
