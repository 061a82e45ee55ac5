import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heterps.cli.main import main
from heterps.testing.commands import Result
from heterps.testing.problems import random_problem


@pytest.fixture
def heterps(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The command in this process."""

    def run(*args: str) -> Result:
        code = main(args)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def to_file(document: dict[str, Any], name: str = "problem.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return str(path)

    return to_file


@pytest.fixture
def endless(write) -> str:
    """A problem that brute force takes minutes for."""
    problem = random_problem(3, layers=(22, 22), types=(2, 2), limited=False)
    return write(problem.as_document())
