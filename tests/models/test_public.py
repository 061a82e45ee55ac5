import inspect
import subprocess
import sys

import pytest

from heterps import models


@pytest.mark.parametrize("name", models.__all__)
def test_every_public_name_is_there_and_lives_where_it_is_listed(name: str):
    value = getattr(models, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__ == models._MODULE_OF[name]


def test_the_list_is_complete():
    assert set(models._MODULE_OF) == set(models.__all__)
    assert set(models.__all__) <= set(dir(models))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fly"):
        models.fly  # noqa: B018


def test_importing_the_package_does_not_load_torch():
    code = "import sys, heterps.models; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
