import json
from pathlib import Path

import pytest

import heterps
from heterps import InputError, Job, Problem, Progress, api
from heterps.planning.schedulers.base import Report, Scheduler, Stop

ROOT = Path(__file__).parents[1]
JOB = ROOT / "examples" / "ctrdnn" / "job.yaml"
PROBLEM = ROOT / "examples" / "planning" / "problem.json"
CASE = ROOT / "tests" / "cases" / "ctrdnn16-cpu-v100-mid.json"


class Recorder(Scheduler):
    """Remembers what it was called with."""

    name = "recorder"
    seeds: list[int] = []  # noqa: RUF012
    stops: list[bool] = []  # noqa: RUF012

    def __init__(self, seed: int = 0) -> None:
        self.seeds.append(seed)

    def plan(self, problem: Problem, *, stop: Stop, report: Report) -> heterps.Plan:
        self.stops.append(stop())
        report(Progress(1, 2))
        return heterps.make_scheduler("exact").plan(problem)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    Recorder.seeds, Recorder.stops = [], []
    monkeypatch.setattr(api, "make_scheduler", lambda method, seed: Recorder(seed))
    return Recorder


def test_a_problem_a_job_and_their_files_give_the_same_plan():
    job = heterps.load_job(JOB)
    sources = (JOB, str(JOB), job, Problem.of(job))
    assert len({heterps.plan(source, method="exact").cost for source in sources}) == 1


def test_the_job_of_the_first_example_is_planned_on_both_types_with_replicas_and_two_servers():
    job = heterps.load_job(ROOT / "examples" / "clicks" / "job.yaml")
    stages = heterps.plan(job.with_samples(400_000)).stages  # as many as `make train` makes
    assert [stage.type for stage in stages] == ["front", "back"]
    assert max(stage.units for stage in stages) == 2
    assert job.servers.count == 2


def test_the_plan_says_how_long_planning_took():
    assert heterps.plan(PROBLEM, method="exact").planning_s > 0


def test_the_seed_is_the_given_one_else_that_of_the_job_else_0(recorder: type[Recorder]):
    job = Job.parse(json.loads(PROBLEM.read_text()) | {"seed": 7})
    heterps.plan(job)
    heterps.plan(job, seed=3)
    heterps.plan(PROBLEM)
    assert recorder.seeds == [7, 3, 0]


def test_the_time_budget_and_the_callers_stop_both_stop(recorder: type[Recorder]):
    heterps.plan(PROBLEM)
    heterps.plan(PROBLEM, time_budget=0)
    heterps.plan(PROBLEM, time_budget=1000)
    heterps.plan(PROBLEM, time_budget=1000, stop=lambda: True)
    assert recorder.stops == [False, True, False, True]


def test_progress_is_passed_on(recorder: type[Recorder]):
    seen: list[Progress] = []
    heterps.plan(PROBLEM, progress=seen.append)
    assert seen == [Progress(1, 2)]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"seed": -1}, "seed"),
        ({"time_budget": -1.0}, "time_budget"),
        ({"time_budget": float("nan")}, "time_budget"),
        ({"method": "exat"}, "method"),
    ],
)
def test_bad_arguments_are_refused_by_name(options: dict[str, object], path: str):
    with pytest.raises(InputError) as caught:
        heterps.plan(PROBLEM, **options)
    assert caught.value.path == path


@pytest.mark.parametrize("path", [JOB, PROBLEM, CASE])
def test_jobs_problem_files_and_cases_are_told_apart(path: Path):
    assert heterps.load_problem(path).layers > 0


def test_the_paths_of_a_job_are_relative_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert heterps.load_problem(JOB).types == ("cpu", "v100")


@pytest.mark.parametrize("extra", [{"name": "case"}, {"seed": 1}])
def test_an_error_names_file_and_field_once(tmp_path: Path, extra: dict[str, object]):
    document = json.loads(PROBLEM.read_text()) | extra
    document["profile"]["layers"][0]["on"]["gpu"]["alpha"] = 2
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        heterps.load_problem(path)
    assert str(caught.value).startswith(f"{path}: profile.layers[0].on.gpu.alpha: expected")
    assert str(caught.value).count(str(path)) == 1
