import math

import numpy as np
import pyarrow as pa
import pytest

from heterps.data.columns import Bags, decode
from heterps.data.hashing import hash_integers, hash_texts, missing_id
from heterps.data.schema import check_schema
from heterps.errors import InputError
from heterps.job.data import DataSpec


def spec(**fields: object) -> DataSpec:
    return DataSpec.parse({"train": "x", **fields})


def ids(values: object, kind: pa.DataType | None = None, rows: list[int] | None = None) -> list:
    table = pa.table({"label": pa.array([0] * len(values)), "C1": pa.array(values, kind)})
    order = None if rows is None else np.array(rows, np.int64)
    return decode(table, spec(sparse=["C1"]), order, labels=True).ids[0].tolist()


def integer_ids(slot: str, *values: int) -> list[int]:
    hashed = np.array(values)
    hash_integers(slot, hashed)
    return hashed.tolist()


def text_ids(*texts: str) -> list[int]:
    data = "".join(texts).encode()
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)])
    return hash_texts("C1", np.frombuffer(data, np.uint8), offsets).tolist()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64()])
def test_whole_numbers_of_any_width_hash_alike(kind: pa.DataType):
    expected = integer_ids("C1", 3, 0, 7)
    assert ids([3, 0, 7], kind) == expected
    assert ids([3, None, 7], kind) == [expected[0], missing_id("C1"), expected[2]]
    assert ids([3, None, 7], kind, [2, 1]) == [expected[2], missing_id("C1")]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.string(), pa.large_string(), pa.binary()),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
)
def test_texts_hash_alike_however_they_are_stored(kind: pa.DataType):
    a, long, empty = text_ids("a", "ä longer text", "")
    assert ids(["a", None, "ä longer text", "", "a"], kind) == [a, missing_id("C1"), long, empty, a]
    assert ids(["a", None, "ä longer text"], kind, [2, 1, 0]) == [long, missing_id("C1"), a]


def test_ids_do_not_depend_on_the_order_of_a_dictionary():
    one = pa.DictionaryArray.from_arrays([0, 1], ["a", "b"])
    other = pa.DictionaryArray.from_arrays([1, 0], ["b", "a"])
    assert ids(one) == ids(other) == text_ids("a", "b")


def test_slices_and_chunks_of_columns_hash_as_the_whole():
    texts = pa.array(["x", "a", None, "b"])
    assert ids(texts.slice(1)) == ids(["a", None, "b"])
    table = pa.table({"C1": pa.chunked_array([texts.slice(0, 2), texts.slice(2)])})
    found = decode(table, spec(sparse=["C1"]), None, labels=False).ids[0]
    assert found.tolist() == ids(texts)


def test_a_column_without_any_value_is_all_missing():
    assert ids([None, None], pa.null()) == [missing_id("C1")] * 2


def test_lists_become_bags_and_a_missing_list_is_empty():
    table = pa.table({"tags": pa.array([[1, 2], None, [], [3, None]])})
    slots = spec(sparse=[{"name": "tags", "multi": True}])
    bags = decode(table, slots, None, labels=False).bags["tags"]
    one, two, three = integer_ids("tags", 1, 2, 3)
    assert bags.ids.tolist() == [one, two, three, missing_id("tags")]
    assert bags.offsets.tolist() == [0, 2, 2, 2, 4]
    turned = decode(table, slots, np.array([3, 1, 0]), labels=False).bags["tags"]
    assert turned.ids.tolist() == [three, missing_id("tags"), one, two]
    assert turned.offsets.tolist() == [0, 2, 2, 4]


def test_slots_of_one_space_share_ids_and_unhashed_ones_keep_their_numbers():
    table = pa.table({"item": [3, None], "past": [[3], [4]], "raw": [7, None]})
    slots = [
        "item",
        {"name": "past", "multi": True, "space": "item"},
        {"name": "raw", "hash": False},
    ]
    columns = decode(table, spec(sparse=slots), None, labels=False)
    three, four = integer_ids("item", 3, 4)
    assert columns.ids.tolist() == [[three, missing_id("item")], [7, missing_id("raw")]]
    assert columns.bags["past"].ids.tolist() == [three, four]


def test_bags_of_no_rows():
    empty = Bags(np.array([1, 2]), np.array([0, 2])).take(np.array([], np.int64))
    assert (empty.ids.tolist(), empty.offsets.tolist()) == ([], [0])


@pytest.mark.slow  # imports torch
def test_dense_values_are_transformed_and_missing_ones_become_zero():
    table = pa.table(
        {"a": pa.array([math.e - 1, None, -3.0]), "b": pa.array([0, None, 7], pa.int64())}
    )
    columns = decode(table, spec(dense=["a", "b"]), None, labels=False)
    assert columns.dense.dtype == np.float32
    assert columns.dense.tolist() == pytest.approx(
        np.array([[1, 0], [0, 0], [-math.log(4), math.log(8)]])
    )
    plain = decode(table, spec(dense=["b", "a"], transform="none"), None, labels=False).dense
    assert plain[2].tolist() == [7, -3]
    assert plain[1].tolist() == [0, 0]


@pytest.mark.slow  # imports torch
def test_not_a_number_and_infinity_count_as_missing():
    table = pa.table({"a": pa.array([math.nan, math.inf, -math.inf], pa.float32())})
    assert decode(table, spec(dense=["a"]), None, labels=False).dense.tolist() == [[0], [0], [0]]


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize("transform", ["none", "log1p"])
def test_a_dense_value_beyond_float32_counts_as_infinity(transform: str):
    table = pa.table({"a": [1e300, -1e300, 0.0]})
    columns = decode(table, spec(dense=["a"], transform=transform), None, labels=False)
    assert columns.dense.tolist() == [[0], [0], [0]]


def test_a_label_beyond_float32_is_refused():
    table = pa.table({"label": [1e300], "C1": [1]})
    with pytest.raises(InputError, match="label: a value is missing or not finite"):
        decode(table, spec(sparse=["C1"]), None, labels=True)


def test_labels_and_weights_are_floats():
    table = pa.table({"y": [True, False], "w": [0.5, 2.0], "C1": [1, 2]})
    columns = decode(table, spec(label="y", weight="w", sparse=["C1"]), None, labels=True)
    assert (columns.label.tolist(), columns.weight.tolist()) == ([1, 0], [0.5, 2])
    assert columns.label.dtype == columns.weight.dtype == np.float32
    assert columns.dense.shape == (2, 0)
    assert columns.size_bytes == 2 * (4 + 4 + 8)


def test_a_missing_label_is_refused():
    table = pa.table({"label": [1, None], "C1": [1, 2]})
    with pytest.raises(InputError, match="label: a value is missing"):
        decode(table, spec(sparse=["C1"]), None, labels=True)


def test_a_weight_below_0_is_refused():
    table = pa.table({"label": [0, 1], "w": [0.0, -0.5], "C1": [1, 2]})
    weighted = spec(weight="w", sparse=["C1"])
    with pytest.raises(InputError, match=r"w: expected weights of 0 or more, got -0\.5"):
        decode(table, weighted, None, labels=True)
    assert decode(table, weighted, np.array([0]), labels=True).weight.tolist() == [0]
    assert decode(table, weighted, np.array([], np.int64), labels=True).rows == 0


def test_a_column_that_is_not_there_is_named_with_the_nearest():
    schema = pa.schema([("click", pa.int8()), ("C1", pa.int64())])
    with pytest.raises(InputError) as caught:
        check_schema(schema, spec(sparse=["C1", "C11"], label="click"), "x.parquet", labels=True)
    assert str(caught.value) == (
        "data.sparse[1]: unknown column of x.parquet 'C11' (known: C1, click); did you mean 'C1'?"
    )


@pytest.mark.parametrize(
    ("kind", "slot", "problem"),
    [
        (pa.list_(pa.int64()), "c", "holds lists: write {name: c, multi: true}"),
        (
            pa.int64(),
            {"name": "c", "multi": True},
            "holds int64, one value a row: leave out multi",
        ),
        (pa.float32(), "c", "holds float, expected whole numbers or texts"),
        (
            pa.string(),
            {"name": "c", "hash": False},
            "holds string: leave out hash, which only whole numbers can do without",
        ),
        (
            pa.list_(pa.float32()),
            {"name": "c", "multi": True},
            "holds list<item: float>, expected whole numbers or texts",
        ),
    ],
)
def test_a_column_of_the_wrong_type_is_named(kind: pa.DataType, slot: object, problem: str):
    schema = pa.schema([("label", pa.int8()), ("c", kind)])
    with pytest.raises(InputError) as caught:
        check_schema(schema, spec(sparse=[slot]), "x.parquet", labels=True)
    assert str(caught.value) == f"data.sparse[0]: column 'c' of x.parquet {problem}"


def test_texts_are_no_numbers():
    schema = pa.schema([("label", pa.string()), ("a", pa.float32())])
    with pytest.raises(InputError, match=r"data\.label: column 'label' of x holds string"):
        check_schema(schema, spec(dense=["a"]), "x", labels=True)
