import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heterps.cli import compare
from heterps.testing.commands import on_terminal, shell

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
MID = str(CASES / "ctrdnn16-cpu-v100-mid.json")
LIMIT = str(CASES / "infeasible-limit.json")


def test_in_a_pipe_the_text_is_plain():
    result = shell("plan", "examples/ctrdnn/job.yaml")
    assert (result.code, result.err) == (0, "")
    assert "proven optimal" in result.out
    assert "\x1b" not in result.out
    assert not any(0x2500 <= ord(letter) < 0x2600 for letter in result.out)


def test_the_command_exits_with_the_code_of_the_answer():
    assert shell("plan", "--problem", LIMIT, "--method", "exact", "--json").code == 3
    bad = shell("plan", "nowhere.yaml")
    assert (bad.code, bad.out) == (1, "")
    assert bad.err == "heterps: nowhere.yaml: cannot be read (No such file or directory)\n"


def test_planning_needs_neither_torch_nor_the_extras():
    heavy = ("torch", "matplotlib", "pymoo", "optuna", "rich")
    code = (
        "import sys; from heterps.cli.main import main; main(sys.argv[1:]);"
        f"sys.exit(str([name for name in {heavy} if name in sys.modules]))"
    )
    command = [sys.executable, "-c", code, "plan", MID, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "[]"


def test_ctrl_c_returns_the_best_plan_so_far(endless: str):
    result = on_terminal(
        *("plan", endless, "--method", "brute-force", "--json"),
        until="brute-force",  # the progress bar
        then=lambda process: process.send_signal(signal.SIGINT),
    )
    assert result.code == 0
    assert result.lines[0]["method"] == "brute-force"
    assert result.lines[0]["cost"] > 0
    assert "stopping with the best so far" in result.err


def test_ctrl_c_ends_a_comparison_with_what_is_known(heterps, endless: str, monkeypatch):
    monkeypatch.setattr(compare, "METHODS", ("exact", "brute-force", "greedy"))
    monkeypatch.setattr(
        compare.ProgressBar, "report", lambda *_: os.kill(os.getpid(), signal.SIGINT)
    )
    result = heterps("plan", endless, "--compare", "--json", "--method", "auto")
    exact, brute, greedy = result.lines[0]["methods"]
    assert result.code == 0
    assert exact["gap"] == 0
    assert brute["note"] == "interrupted"
    assert greedy["error"] == "not run: interrupted"


def test_ctrl_c_before_any_method_has_a_plan_is_no_failure(heterps, endless: str, monkeypatch):
    def at_once(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("heterps.cli.answer.ensure_profile", at_once)
    result = heterps("plan", endless, "--compare")
    assert (result.code, result.out) == (130, "")
    assert result.err == f"heterps: {endless}: interrupted before any method had a plan\n"


def test_a_second_ctrl_c_aborts(heterps, endless: str, monkeypatch: pytest.MonkeyPatch):
    def twice(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("heterps.cli.answer.ProgressBar.report", twice)
    result = heterps("plan", endless, "--method", "brute-force", "--json")
    assert (result.code, result.out) == (130, "")
