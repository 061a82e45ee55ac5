import inspect
import subprocess
import sys

import pytest

import heterps
from heterps import errors


@pytest.mark.parametrize("name", heterps.__all__)
def test_every_public_name_is_there_and_lives_where_it_is_listed(name: str):
    value = getattr(heterps, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__ == heterps._MODULE_OF[name]
        assert value.__name__ == name


def test_the_list_is_complete_and_in_order():
    assert {*heterps._MODULE_OF, "__version__"} == set(heterps.__all__)
    assert len(set(heterps.__all__)) == len(heterps.__all__)
    assert set(heterps.__all__) <= set(dir(heterps))


def test_every_error_is_public():
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    names = {cls.__name__ for cls in classes if issubclass(cls, errors.HeterPSError)}
    assert names <= set(heterps.__all__)


def test_a_star_import_gives_the_public_names():
    space: dict[str, object] = {}
    exec("from heterps import *", space)
    assert set(heterps.__all__) <= set(space)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fly"):
        heterps.fly  # noqa: B018


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, heterps; print([n for n in ('numpy', 'pydantic') if n in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
