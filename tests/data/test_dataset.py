import numpy as np
import pyarrow as pa
import pytest

from heterps.data.batch import Slice, make_batch
from heterps.data.dataset import Dataset, blank_batch
from heterps.data.schema import SlotKind
from heterps.errors import InputError
from heterps.job.data import DataSpec


def samples(data: Dataset) -> list[int]:
    """The numbers of the samples, in the order of the files."""
    return [int(x) for g in range(len(data.sizes)) for x in data.read(g).dense[:, 0]]


def test_row_groups_of_all_files_follow_each_other(numbered):
    data = Dataset.open(numbered([4, 3], [5]))
    assert data.sizes == (4, 3, 5)
    assert samples(data) == list(range(12))
    assert data.read(1, np.array([2, 0])).dense.ravel().tolist() == [6, 4]


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.999])
def test_a_fraction_splits_the_samples_without_overlap(numbered, fraction: float):
    spec = numbered([40, 40, 7], [31], validation=fraction)
    train, validation = (Dataset.open(spec, part) for part in ("train", "validation"))
    assert validation.samples == int(118 * fraction)
    assert sorted(samples(train) + samples(validation)) == list(range(118))
    assert samples(train.other("validation")) == samples(validation)
    assert samples(validation.other("train")) == samples(train)
    order = np.arange(train.sizes[0])[::-1]
    assert train.read(0, order).dense[:, 0].tolist() == train.read(0).dense[::-1, 0].tolist()


def test_a_fraction_is_drawn_and_not_cut_off(numbered):
    validation = samples(Dataset.open(numbered([100], validation=0.5), "validation"))
    assert validation == sorted(validation)
    assert 15 < sum(number < 50 for number in validation) < 35


def test_validation_from_files_of_its_own(numbered, parquet):
    path = parquet("v/a.parquet", {"click": [1], "I1": [7.0], "C1": [1]})
    assert samples(Dataset.open(numbered([3], validation=str(path)), "validation")) == [7]


def test_validation_that_is_not_given_is_refused(numbered):
    with pytest.raises(InputError, match=r"data\.validation: is missing: give a path, or a fract"):
        Dataset.open(numbered([3]), "validation")


def test_data_without_samples_are_refused(parquet):
    path = parquet("a.parquet", {"label": np.empty(0, np.int8), "C1": np.empty(0, np.int64)})
    with pytest.raises(InputError, match=r"data\.train: holds no samples"):
        Dataset.open(DataSpec.parse({"train": str(path), "sparse": ["C1"]}))


def kinds_of_c1(parquet, *held: object, multi: bool = False) -> DataSpec:
    """A data set of a file for each kind of ``C1``."""
    for index, values in enumerate(held):
        array = values if isinstance(values, pa.Array) else pa.array(values)
        path = parquet(f"d/{index}.parquet", {"label": [0] * len(array), "C1": array})
    slot = {"name": "C1", "multi": multi}
    return DataSpec.parse({"train": str(path.parent), "sparse": [slot]})


@pytest.mark.parametrize("multi", [False, True])
def test_numbers_in_one_file_and_texts_in_another_are_refused(parquet, multi: bool):
    one, other = ([[7]], [["7"]]) if multi else ([7], ["7"])
    spec = kinds_of_c1(parquet, one, one, other, multi=multi)
    with pytest.raises(InputError) as caught:
        Dataset.open(spec)
    folder = spec.train[0]
    types = ("list<element: string>", "list<element: int64>") if multi else ("string", "int64")
    assert str(caught.value) == (
        f"data.sparse[0]: column 'C1' of {folder}/2.parquet holds texts ({types[0]}), that of "
        f"{folder}/0.parquet whole numbers ({types[1]}), which have other ids: make them the same"
    )


@pytest.mark.parametrize(
    "held",
    [
        ([None], [1], pa.array([1], pa.int8()), pa.array([True]), [None]),
        ([None], ["a"], pa.array([b"a"]), pa.array(["a"]).dictionary_encode(), [None]),
    ],
)
def test_kinds_that_have_the_same_ids_may_be_mixed(parquet, held):
    assert Dataset.open(kinds_of_c1(parquet, *held)).samples == len(held)


def test_validation_data_of_another_kind_than_those_trained_on_are_refused(parquet):
    spec = kinds_of_c1(parquet, [7])
    path = parquet("v.parquet", {"label": [0], "C1": ["7"]})
    train = Dataset.open(spec)
    spec = spec.model_copy(update={"validation": (str(path),)})
    assert Dataset.open(spec, "validation").samples == 1
    with pytest.raises(
        InputError, match=r"'C1' of .*v\.parquet holds texts .*0\.parquet whole num"
    ):
        Dataset.open(spec, "validation", like=train.kinds)


@pytest.mark.parametrize(("held", "trained"), [(7, "texts"), ("7", "whole numbers")])
def test_files_of_another_kind_than_what_was_trained_on_are_refused(parquet, held, trained):
    like, spec = {"C1": SlotKind(trained, "the run")}, kinds_of_c1(parquet, [None], [held])
    said = rf"1\.parquet holds .*, and the run was trained on {trained}, .*: write it as {trained}$"
    with pytest.raises(InputError, match=said):
        Dataset.open(spec, like=like)
    assert Dataset.open(kinds_of_c1(parquet, [None], [None]), like=like).kinds == like


def test_labels_outside_0_and_1_are_refused_where_they_have_to_be_binary(parquet):
    path = parquet("a.parquet", {"label": [0, 1, 2], "C1": [1, 2, 3]})
    spec = DataSpec.parse({"train": str(path), "sparse": ["C1"]})
    assert Dataset.open(spec).read(0).label.tolist() == [0, 1, 2]
    with pytest.raises(InputError) as caught:
        Dataset.open(spec, binary=True).read(0)
    assert str(caught.value) == (
        f"{path}: row group 0, column 'label': expected the labels 0 and 1, got 2"
    )


def test_a_weight_below_0_is_named_with_its_file(parquet):
    path = parquet("a.parquet", {"label": [0, 1, 1], "w": [1.0, 1.0, -1.0], "C1": [1, 2, 3]}, 2)
    data = Dataset.open(DataSpec.parse({"train": str(path), "sparse": ["C1"], "weight": "w"}))
    assert data.read(0).weight.tolist() == [1, 1]
    with pytest.raises(InputError) as caught:
        data.read(1)
    assert str(caught.value) == (
        f"{path}: row group 1, column 'w': expected weights of 0 or more, got -1"
    )


def test_a_blank_batch_has_the_names_types_and_shapes_of_a_read_one(parquet):
    values = {"click": [1, 0], "w": [2.0, 1.0], "I1": [7.0, 8.0], "C1": [1, 2], "C2": [[1], [2]]}
    path = parquet("a.parquet", values)
    slots = ["C1", {"name": "C2", "multi": True}]
    given = {"train": str(path), "label": "click", "weight": "w", "dense": ["I1"], "sparse": slots}
    spec = DataSpec.parse(given)
    read = make_batch([Slice(Dataset.open(spec).read(0), 0, 2)])
    blank = blank_batch(spec, 2)
    assert list(blank) == list(read)
    for name, tensor in read.items():
        assert (blank[name].dtype, blank[name].shape) == (tensor.dtype, tensor.shape)


def test_without_labels_the_column_may_be_absent(parquet):
    path = parquet("a.parquet", {"C1": [1, 2, 3]})
    spec = DataSpec.parse({"train": str(path), "sparse": ["C1"]})
    columns = Dataset.open(spec, labels=False).read(0)
    assert (columns.label, columns.rows) == (None, 3)
