from typing import Annotated

import pytest
from pydantic import AfterValidator

from heterps.errors import InputError, UnknownNameError
from heterps.job.fields import Amount, AnyText, Bytes, Count, Record, Share, Text, join_path, refuse


def _without_repetition(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise refuse("a name stands twice", len(names) - 1)
    return names


class Inner(Record):
    share: Share = 0.5
    size: Bytes = 0


class Outer(Record):
    count: Count
    name: Text = "name"
    note: AnyText = ""
    amount: Amount | None = None
    inner: dict[str, Inner] | None = None
    items: tuple[Inner, ...] = ()
    names: Annotated[tuple[str, ...], AfterValidator(_without_repetition)] = ()


@pytest.mark.parametrize(
    ("document", "path", "problem"),
    [
        ({}, "count", "is missing"),
        ({"count": "3"}, "count", "expected a number, got '3'"),
        ({"count": 3.5}, "count", "expected a whole number, got 3.5"),
        ({"count": -1}, "count", "expected 0 or more, got -1"),
        ({"count": 1, "amount": float("nan")}, "amount", "expected a finite number, got nan"),
        ({"count": 1, "name": ""}, "name", "expected a non-empty text, got ''"),
        ({"count": 1, "note": 1}, "note", "expected a text, got 1"),
        ({"count": 1, "inner": []}, "inner", "expected a mapping, got []"),
        ({"count": 1, "inner": {"a": 1}}, "inner.a", "expected a mapping, got 1"),
        ({"count": 1, "items": {}}, "items", "expected a list, got {}"),
        (
            {"count": 1, "items": [{}, {"share": 2}]},
            "items[1].share",
            "expected a fraction in [0, 1], got 2.0",
        ),
        ({"count": 1, "inner": {"a": {"size": -1}}}, "inner.a.size", "expected 0 or more, got -1"),
        ({"count": 1, "names": ["a", "a"]}, "names[1]", "a name stands twice"),
    ],
)
def test_a_bad_value_is_named_by_its_path(document, path, problem):
    with pytest.raises(InputError) as caught:
        Outer.parse(document, "job.outer")
    assert (caught.value.path, caught.value.problem) == (f"job.outer.{path}", problem)


def test_an_unknown_key_lists_the_keys_of_its_own_object():
    with pytest.raises(UnknownNameError) as caught:
        Outer.parse({"count": 1, "items": [{"sharr": 1}]})
    expected = "items[0].sharr: unknown key 'sharr' (known: share, size); did you mean 'share'?"
    assert str(caught.value) == expected


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InputError) as caught:
        Outer.parse({"count": "x" * 1000})
    assert len(str(caught.value)) < 100


def test_what_is_not_a_mapping_is_named_by_the_object():
    with pytest.raises(InputError, match=r"^outer: expected a mapping, got \[\]"):
        Outer.parse([])


def test_a_document_holds_what_was_given():
    document = {"count": 3, "items": [{"share": 1.0}]}
    assert Outer.parse(document).as_document() == document


def test_large_whole_numbers_of_bytes_stay_exact():
    assert Inner.parse({"size": 2**80 + 1}).size == 2**80 + 1


def test_a_path_joins_names_and_numbers():
    assert join_path("a", ("b", 0, "c")) == "a.b[0].c"
    assert join_path("", ("b", 0)) == "b[0]"
