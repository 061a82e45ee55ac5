import json
import math
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heterps.cli import compare
from heterps.cli.main import app, main
from heterps.planning.problem import Problem
from heterps.planning.schedulers import METHODS
from heterps.testing.problems import random_problem

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"
JOB = str(ROOT / "examples" / "ctrdnn" / "job.yaml")
WORKED = str(ROOT / "examples" / "planning" / "problem.json")
MID = str(CASES / "ctrdnn16-cpu-v100-mid.json")
LIMIT = str(CASES / "infeasible-limit.json")
SLOW = str(CASES / "infeasible-throughput.json")
PLAN_KEYS = {
    *("method", "assignment", "stages", "throughput", "seconds", "cost", "lower_bound", "gap"),
    *("evaluations", "planning_s"),
}

Document = dict[str, Any]


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[Document]:
        return [json.loads(line, parse_constant=pytest.fail) for line in self.out.splitlines()]


@pytest.fixture
def heterps(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The command in this process."""

    def run(*args: str) -> Result:
        code = main(args)
        return Result(code, *capsys.readouterr())

    return run


def shell(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heterps", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Document, str], str]:
    def to_file(document: Document, name: str = "problem.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return str(path)

    return to_file


def worked() -> Document:
    return json.loads(Path(WORKED).read_text())


# -- one file


def test_the_text_shows_stages_totals_certainty_and_reasons(heterps):
    result = heterps("plan", JOB, "--method", "exact")
    assert (result.code, result.err) == (0, "")
    for part in (
        "embedding..concat (3)     cpu      73",
        "batch_norm..softmax (13)  v100      4",
        "741,040 samples/s (floor 707,000)",
        "$0.2165, $0.004723 per million samples",
        "proven optimal",
        "stage 1 on v100 sets the pace, bound by communication",
        "one more cpu (limit 481) or v100 (limit 33): no change",
        "10 % less throughput (floor 636,300): $0.03492 less (16.1 %)",
        "+$0.1189  +54.9 %  48 cpu: embedding..batch_norm (4) | 7 v100: fc1..softmax (12)",
    ):
        assert part in result.out


def test_json_is_one_line_with_the_keys_of_a_plan(heterps):
    result = heterps("plan", MID, "--method", "exact", "--json")
    (line,) = result.lines
    assert line.keys() >= PLAN_KEYS
    assert line["cost"] == pytest.approx(json.loads(Path(MID).read_text())["expect"]["cost"])
    assert line["gap"] == 0
    assert line["planning_s"] > 0
    first, second = line["stages"]
    assert (first["first"], first["last"], second["first"], second["last"]) == (0, 2, 3, 15)


def test_the_default_method_proves_the_optimum(heterps):
    (line,) = heterps("plan", MID, "--json").lines
    assert (line["method"], line["gap"]) == ("auto", 0)


def test_the_explanation_is_added_to_json_on_request(heterps):
    (line,) = heterps("plan", MID, "--method", "exact", "--json", "--explain").lines
    assert line["explanation"]["binding"] == {"stage": 1, "by": "communication"}


def test_a_method_without_proof_says_so_and_names_the_better_plan(heterps):
    result = heterps("plan", MID, "--method", "single-type")
    assert "nothing is proven about cheaper plans" in result.out
    assert "less (57.5 %) with the plan of --method auto" in result.out


def test_a_time_budget_of_zero_still_gives_a_plan(heterps):
    (line,) = heterps("plan", MID, "--method", "exact", "--time-budget", "0", "--json").lines
    assert line["cost"] >= line["lower_bound"]


def test_a_plan_is_written_to_a_file(heterps, tmp_path: Path):
    out = tmp_path / "plan.json"
    (line,) = heterps("plan", MID, "--method", "exact", "--json", "--out", str(out)).lines
    del line["problem"]
    assert json.loads(out.read_text()) == line


def test_a_file_that_cannot_be_written_is_an_error(heterps, tmp_path: Path):
    result = heterps("plan", MID, "--method", "exact", "--out", str(tmp_path))
    assert result.code == 1
    assert "cannot be written" in result.err


def test_overhead_and_a_missing_floor_are_shown(heterps, write):
    document = worked()
    document["workload"]["overhead_per_hour"] = 1.0
    del document["workload"]["min_throughput"]
    out = heterps("plan", write(document), "--method", "exact").out
    assert "of it overhead" in out
    assert "(no floor)" in out
    assert "10 % less" not in out


def test_a_model_that_takes_no_time_is_planned(heterps, write):
    free = {"compute_s": 0, "comm_s": 0, "alpha": 1, "beta": 1, "transfer_s": 0}
    document = worked()
    for layer in document["profile"]["layers"]:
        layer["on"] = {"cpu": free}
    path = write(document)
    assert "no stage takes any time" in heterps("plan", path, "--method", "exact", "--frontier").out
    (line,) = heterps("plan", path, "--method", "exact", "--json").lines
    assert (line["throughput"], line["cost"], line["gap"]) == (None, 0, 0)


# -- a given assignment


def test_a_given_assignment_gets_its_cheapest_units(heterps):
    (line,) = heterps("plan", WORKED, "--assignment", "cpu, gpu", "--json").lines
    assert [stage["units"] for stage in line["stages"]] == [14, 2]
    assert line["cost"] == pytest.approx(2.508)
    assert (line["method"], line["lower_bound"], line["gap"]) == ("assignment", None, None)


@pytest.mark.parametrize(
    ("assignment", "code", "message"),
    [
        ("cpu,gpux", 1, "assignment[1]: unknown resource type 'gpux' (known: cpu, gpu); did you"),
        ("cpu", 1, "assignment: names 1 types for 2 layers"),
        ("", 1, "assignment: names 1 types for 2 layers"),
        ("gpu,gpu", 3, "no feasible plan (throughput)"),
    ],
)
def test_a_bad_assignment_is_refused(heterps, assignment: str, code: int, message: str):
    result = heterps("plan", WORKED, "--assignment", assignment)
    assert (result.code, result.out) == (code, "")
    assert message in result.err


# -- several files


@pytest.mark.parametrize(
    "files",
    [
        ("--problem", MID, WORKED),
        ("--problem", MID, "--problem", WORKED),
        (f"--problem={MID}", f"--problem={WORKED}"),
        (MID, "--problem", WORKED),
        (MID, WORKED),
    ],
)
def test_several_files_give_a_line_each_in_their_order(heterps, files: tuple[str, ...]):
    result = heterps("plan", *files, "--method", "exact", "--json")
    assert result.code == 0
    assert [line["problem"] for line in result.lines] == [MID, WORKED]


def test_all_files_are_answered_and_an_error_outweighs_infeasibility(heterps):
    files = (MID, "nowhere.json", LIMIT, WORKED)
    result = heterps("plan", "--problem", *files, "--method", "exact", "--json")
    assert result.code == 1
    assert ["cost" in line for line in result.lines] == [True, False, False, True]
    assert result.lines[1]["error"].startswith("nowhere.json: cannot be read")
    assert result.lines[2]["infeasible"] == "limit"
    assert result.err.count("\n") == 1


def test_infeasibility_outweighs_success(heterps):
    result = heterps("plan", "--problem", LIMIT, WORKED, "--method", "exact")
    assert result.code == 3
    assert WORKED in result.out


# -- no feasible plan


@pytest.mark.parametrize("reason", ["layer", "limit", "memory", "throughput"])
def test_an_infeasible_problem_gives_its_reason(heterps, reason: str):
    path = str(CASES / f"infeasible-{reason}.json")
    expected = json.loads(Path(path).read_text())["expect"]
    result = heterps("plan", path, "--method", "exact", "--json")
    (line,) = result.lines
    assert (result.code, result.err) == (3, "")
    assert line["infeasible"] == expected["infeasible"] == reason
    if reason == "throughput":
        assert line["max_throughput"] == pytest.approx(expected["max_throughput"])
    else:
        assert line["max_throughput"] is None


def test_as_text_infeasibility_is_one_line_with_the_best_reachable_value(heterps):
    result = heterps("plan", SLOW, "--method", "exact")
    assert (result.code, result.out) == (3, "")
    assert result.err.count("\n") == 1
    assert "workload.min_throughput is 1.23693e+06 samples/s, and 1.17803e+06" in result.err


# -- bad input


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


# -- usage


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


# -- comparison, frontier, pictures


def test_a_comparison_has_a_row_for_each_method_and_says_why_one_failed(
    heterps, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compare, "METHODS", ("exact", "greedy", "single-type", "brute-force"))
    result = heterps("plan", str(CASES / "matchnet-four.json"), "--compare")
    assert result.code == 0
    rows = {line.split()[0]: line for line in result.out.splitlines()[3:7]}
    assert " 1.0000 " in rows["exact"]
    assert " 2.0511 " in rows["single-type"]
    assert "4294967296 assignments" in rows["brute-force"]
    assert "ratio: to the proven optimum of $0.1734" in result.out


@pytest.mark.slow
def test_all_methods_are_compared_on_a_case(heterps):
    path = str(CASES / "nce-four.json")
    result = heterps("plan", path, "--compare", "--json", "--time-budget", "1")
    (line,) = result.lines
    assert [entry["method"] for entry in line["methods"]] == list(METHODS)
    assert all(entry["ratio"] >= 1 for entry in line["methods"])
    ratios = {entry["method"]: entry["ratio"] for entry in line["methods"]}
    assert ratios["auto"] == ratios["exact"] == ratios["brute-force"] == 1
    assert line["lower_bound"] == pytest.approx(
        json.loads(Path(path).read_text())["expect"]["cost"]
    )


def test_an_infeasible_problem_has_nothing_to_compare(heterps, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare, "METHODS", ("exact", "greedy"))
    result = heterps("plan", LIMIT, "--compare", "--json")
    assert (result.code, result.lines[0]["infeasible"]) == (3, "limit")


def test_the_frontier_is_a_table_and_a_list(heterps):
    out = heterps("plan", MID, "--method", "exact", "--frontier").out
    assert "741,040  $0.2165" in out
    assert "No plan within the limits is faster than the last" in out
    (line,) = heterps("plan", MID, "--method", "exact", "--frontier", "--json").lines
    costs = [plan["cost"] for plan in line["frontier"]]
    assert costs == sorted(costs)
    assert line["cost"] in costs


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.html", b"<!DOCTYPE html>")])
def test_a_picture_is_drawn(heterps, tmp_path: Path, name: str, start: bytes):
    result = heterps("plan", WORKED, "--method", "exact", "--plot", str(tmp_path / name), "--json")
    assert "frontier" not in result.lines[0]
    assert (tmp_path / name).read_bytes().startswith(start)


# -- the real command


def test_in_a_pipe_the_text_is_plain():
    result = shell("plan", "examples/ctrdnn/job.yaml")
    assert (result.returncode, result.stderr) == (0, "")
    assert "proven optimal" in result.stdout
    assert "\x1b" not in result.stdout
    assert not any(0x2500 <= ord(letter) < 0x2600 for letter in result.stdout)


def test_the_command_exits_with_the_code_of_the_answer():
    assert shell("plan", "--problem", LIMIT, "--method", "exact", "--json").returncode == 3
    bad = shell("plan", "nowhere.yaml")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "heterps: nowhere.yaml: cannot be read (No such file or directory)\n"


def test_planning_needs_neither_torch_nor_the_extras():
    heavy = ("torch", "matplotlib", "pymoo", "optuna", "rich")
    code = (
        "import sys; from heterps.cli.main import main; main(sys.argv[1:]);"
        f"sys.exit(str([name for name in {heavy} if name in sys.modules]))"
    )
    command = [sys.executable, "-c", code, "plan", MID, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "[]"


def on_terminal(*args: str, until: str, then: Callable[[subprocess.Popen[str]], None]) -> Result:
    """Runs with standard error on a terminal, and does something when a text appears there."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "heterps", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, text=True) as process:
        os.close(follower)
        shown, done = "", False
        while True:
            try:
                shown += os.read(leader, 4096).decode()
            except OSError:  # the other end is closed
                break
            if until in shown and not done:
                done = True
                then(process)
        assert process.stdout is not None
        result = Result(0, process.stdout.read(), shown)
        result.code = process.wait()
    os.close(leader)
    return result


@pytest.fixture
def endless(write) -> str:
    """A problem that brute force takes minutes for."""
    problem = random_problem(3, layers=(22, 22), types=(2, 2), limited=False)
    return write(problem.as_document())


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


def test_a_second_ctrl_c_aborts(heterps, endless: str, monkeypatch: pytest.MonkeyPatch):
    def twice(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("heterps.cli.answer.ProgressBar.report", twice)
    result = heterps("plan", endless, "--method", "brute-force", "--json")
    assert (result.code, result.out) == (130, "")
