import re
import tomllib
from itertools import chain
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
BUILD = PROJECT["build-system"]["requires"]


def test_every_requirement_is_pinned_exactly():
    requirements = [*BUILD, *PROJECT["project"]["dependencies"], *chain(*EXTRAS.values())]
    exact = re.compile(r"[\w.-]+(\[\w+\])?==[\w.]+|heterps\[.*\]")
    loose = [r for r in requirements if not exact.fullmatch(r)]
    assert loose == []


def test_the_build_extra_holds_the_build_system_at_the_same_versions():
    assert set(BUILD) <= set(EXTRAS["build"])


def test_building_needs_no_torch():
    assert not any(requirement.startswith("torch") for requirement in [*BUILD, *EXTRAS["build"]])
