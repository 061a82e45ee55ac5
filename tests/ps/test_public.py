import inspect

import pytest

from heterps import ps


@pytest.mark.parametrize("name", ps.__all__)
def test_every_public_name_is_there_and_lives_where_it_is_listed(name: str):
    value = getattr(ps, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__ == ps._MODULE_OF[name]


def test_the_list_is_complete():
    assert set(ps._MODULE_OF) == set(ps.__all__)
    assert set(ps.__all__) <= set(dir(ps))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fly"):
        ps.fly  # noqa: B018
