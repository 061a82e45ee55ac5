import json
import re
from pathlib import Path

import pytest

from heterps.errors import InputError, MissingExtraError
from heterps.planning.frontier import frontier
from heterps.planning.problem import Problem
from heterps.planning.provisioning import provision
from heterps.planning.schedulers.exact import ExactScheduler
from heterps.report import plots

ROOT = Path(__file__).parents[2]
WORKED = ROOT / "examples" / "planning" / "problem.json"


def worked(**names: str) -> Problem:
    text = WORKED.read_text()
    for old, new in names.items():
        text = text.replace(f'"{old}"', json.dumps(new))
    return Problem.parse(json.loads(text))


def draw(problem: Problem, path: Path, *, curve: bool = True) -> bytes:
    found = frontier(problem, 4) if curve else None
    plots.draw_plan(problem, ExactScheduler().plan(problem), found, path)
    return path.read_bytes()


def test_a_png_is_written(tmp_path: Path):
    assert draw(worked(), tmp_path / "p.png").startswith(b"\x89PNG\r\n")


def test_a_page_needs_nothing_else_and_holds_figure_and_stages(tmp_path: Path):
    page = draw(worked(), tmp_path / "p.html").decode()
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<svg") == 1
    assert not re.search(r'(src|href)="(?!#)', page.replace("xlink:href", "href"))
    assert '<td class="name">embedding</td><td class="name">cpu</td><td>14</td>' in page
    assert "proven optimal" in page


def test_the_same_plan_gives_the_same_page(tmp_path: Path):
    assert draw(worked(), tmp_path / "a.html") == draw(worked(), tmp_path / "b.html")


def test_names_are_shown_as_they_are(tmp_path: Path):
    problem = worked(dense="<b>$x^2$</b> 層", tiny="a & b")
    page = draw(problem, tmp_path / "p.html").decode()
    assert "&lt;b&gt;$x^2$&lt;/b&gt; 層" in page
    assert "Plan for a &amp; b" in page
    assert draw(problem, tmp_path / "p.png")


@pytest.mark.parametrize("case", ["deep64-eight", "edge-serial-stage", "sync-ctrdnn16-batch512"])
def test_large_and_small_plans_are_drawn(tmp_path: Path, case: str):
    text = (ROOT / "tests" / "cases" / f"{case}.json").read_text()
    assert draw(Problem.parse(json.loads(text)), tmp_path / "p.png", curve=False)


def test_a_plan_that_takes_no_time_is_drawn(tmp_path: Path):
    document = worked().as_document()
    free = {"compute_s": 0, "comm_s": 0, "alpha": 1, "beta": 1, "transfer_s": 0}
    for layer in document["profile"]["layers"]:
        layer["on"] = {"cpu": free}
    assert draw(Problem.parse(document), tmp_path / "p.png")


def test_a_plan_that_proves_nothing_says_so(tmp_path: Path):
    problem, path = worked(), tmp_path / "p.html"
    plots.draw_plan(problem, provision(problem, ("cpu", "gpu")), None, path)
    assert "nothing is proven" in path.read_text()


def test_a_path_that_cannot_be_written_is_an_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be written"):
        draw(worked(), tmp_path / "nowhere" / "p.png", curve=False)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"heterps\[plot\]"):
        draw(worked(), tmp_path / "p.png", curve=False)
