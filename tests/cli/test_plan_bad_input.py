import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heterps.cli.main import app, main
from heterps.planning.problem import Problem

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
JOB = str(ROOT / "examples" / "ctrdnn" / "job.yaml")
WORKED = str(ROOT / "examples" / "planning" / "problem.json")
MID = str(CASES / "ctrdnn16-cpu-v100-mid.json")
Document = dict[str, Any]


def worked() -> Document:
    return json.loads(Path(WORKED).read_text())


def changed(*path: str | int, to: object) -> Document:
    document = worked()
    place: Any = document
    for part in path[:-1]:
        place = place[part]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return document


LAYER, TYPE = ("profile", "layers", 1), ("cluster", "types", 0)
FIGURES = (*LAYER, "on", "cpu")
BAD = {
    "unknown type": (changed(*LAYER, "on", "tpu", to={}), "profile.layers[1].on.tpu"),
    "unknown key": (changed("workload", "batchsize", to=1), "workload.batchsize: unknown key"),
    "unknown key at the top": (changed("clutser", to={}), "clutser: unknown key"),
    "missing part": (changed("workload", to=None), "workload: is missing"),
    "missing figure": (changed(*FIGURES, "beta", to=None), "layers[1].on.cpu.beta: is missing"),
    "negative figure": (changed(*FIGURES, "comm_s", to=-1), "layers[1].on.cpu.comm_s: expected 0"),
    "not a number": (changed(*FIGURES, "comm_s", to=math.nan), "on.cpu.comm_s: expected a finite"),
    "infinite": (
        changed(*TYPE, "price_per_hour", to=math.inf),
        "types[0].price_per_hour: expected",
    ),
    "text for a number": (
        changed(*TYPE, "limit", to="4"),
        "cluster.types[0].limit: expected a num",
    ),
    "half a unit": (changed(*TYPE, "limit", to=1.5), "types[0].limit: expected a whole number"),
    "yes for a number": (changed(*TYPE, "limit", to=True), "types[0].limit: expected a number"),
    "too many units": (changed(*TYPE, "limit", to=10**30), "cluster.types[0].limit: expected"),
    "too large": (changed(*FIGURES, "compute_s", to=1e300), "on.cpu.compute_s: expected"),
    "alpha above 1": (changed(*FIGURES, "alpha", to=1.01), "on.cpu.alpha: expected a fraction"),
    "no batch": (
        changed("workload", "batch_size", to=0),
        "workload.batch_size: expected 1 or more",
    ),
    "empty chain": (changed("profile", "layers", to=[]), "profile.layers: the chain is empty"),
    "empty cluster": (changed("cluster", "types", to=[]), "cluster.types: the cluster is empty"),
    "a type twice": (
        changed("cluster", "types", 1, "name", to="cpu"),
        "cluster.types[1].name: resource type 'cpu' stands twice",
    ),
    "a layer twice": (
        changed(*LAYER, "name", to="embedding"),
        "layers[1].name: layer 'embedding' stands twice",
    ),
    "a list for a mapping": (changed("cluster", to=[]), "cluster: expected a mapping"),
    "a mapping for a list": (
        changed("profile", "layers", to={}),
        "profile.layers: expected a list",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("flags", [(), ("--json",), ("--problem", "--json")])
def test_bad_input_ends_with_one_line_that_names_file_and_field(
    heterps, write, name: str, flags: tuple[str, ...]
):
    document, message = BAD[name]
    path = write(document)
    result = heterps("plan", path, *flags)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"heterps: {path}: ")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.json", "{", "p.json:1: is not JSON"),
        ("p.json", "[]", "expected a mapping"),
        ("p.json", '{"cluster": {}, "cluster": {}}', "'cluster' stands twice"),
        ("p.json", "", "is not JSON"),
        ("p.json", "[" * 100_000, "nested too deeply"),
        ("p.yaml", "a: [", "is not YAML"),
        ("p.yaml", "a: 1\na: 2", "'a' stands twice"),
        ("p.yaml", "cluster: gone.yaml", "gone.yaml: cannot be read"),
        ("p.yaml", "workload: 3\ncluster: {types: []}", "expected"),
    ],
)
def test_a_file_that_is_no_document_ends_with_one_line(
    heterps, tmp_path: Path, name: str, text: str, message: str
):
    path = tmp_path / name
    path.write_text(text)
    result = heterps("plan", str(path))
    assert (result.code, result.out) == (1, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_job_without_a_profile_is_told_what_to_add(heterps, tmp_path: Path):
    document = worked()
    del document["profile"]
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document))
    assert f"{path}: profile: is missing; name a profile file" in heterps("plan", str(path)).err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Missing argument 'JOB'"),
        ((MID, "--method", "exat"), "did you mean 'exact'?"),
        ((MID, "--nothing"), "No such option"),
        ((MID, "--seed", "-1"), "--seed"),
        ((MID, "--time-budget", "-1"), "--time-budget"),
        ((MID, "--plot", "plan.jpg"), "neither in .png nor in .html"),
        ((MID, WORKED, "--plot", "plan.png"), "one file only"),
        ((MID, WORKED, "--out", "plan.json"), "one file only"),
        ((MID, "--assignment", "a", "--compare"), "neither --method nor --compare"),
        ((MID, "--compare", "--method", "exact"), "leave out --method"),
    ],
)
def test_wrong_usage_exits_with_2(heterps, args: tuple[str, ...], message: str):
    result = heterps("plan", *args)
    assert result.code == 2
    assert message in result.err


def test_help_teaches_with_examples():
    result = CliRunner().invoke(app, ["plan", "--help"])
    assert result.exit_code == 0
    assert "heterps plan job.yaml --compare" in result.output


def test_the_version_is_shown(heterps):
    from heterps import __version__

    assert heterps("--version").out == f"heterps {__version__}\n"


@pytest.mark.parametrize("args", [("--debug", "plan", "x.json"), ("plan", "x.json", "--debug")])
def test_a_traceback_comes_only_with_debug(args: tuple[str, ...]):
    from heterps import InputError

    with pytest.raises(InputError):
        main(args)


def test_a_bug_is_one_line_too(heterps, monkeypatch: pytest.MonkeyPatch):
    def broken(_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(Problem, "parse", broken)
    result = heterps("plan", "--problem", WORKED)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "internal error, KeyError: 'oops'" in result.err
