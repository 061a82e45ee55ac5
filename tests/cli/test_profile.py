import json

import pytest

from heterps.cli import profile as command
from heterps.job.load import load_job
from heterps.planning.profile import Profile
from heterps.runtime.profiling.cache import measured_key
from heterps.testing.runs import document

ON = {"compute_s": 0.01, "comm_s": 0.001, "alpha": 1, "beta": 1, "transfer_s": 0.001}


def profile_of(model, **about):
    names = [f"l{number}" for number in range(12)] if model is None else model
    layers = [
        {"name": name, "kind": "fc", "input_bytes": 4, "weight_bytes": 4, "on": {"cpu": ON}}
        for name in names
    ]
    return {"batch_size": 8, "layers": layers, **about}


MEASURED = profile_of(None, types={"cpu": {"source": "measured", "units": [1], "spread": 0.03}})


@pytest.fixture
def job(tmp_path):
    made = document(tmp_path, "ctrdnn")
    del made["plan"]
    path = tmp_path / "job.json"
    path.write_text(json.dumps(made))
    return path


@pytest.fixture
def measuring(monkeypatch):
    """Measures nothing; keeps what was known before each time, and for how long it is to be."""
    calls = []

    def measure(job, known, seconds):
        calls.append((known, seconds))
        return Profile.parse(MEASURED, "profile")

    monkeypatch.setattr(command, "_measure", measure)
    return calls


def test_a_profile_is_kept_beside_its_job_and_known_from_then_on(heterps, job, measuring):
    result = heterps("profile", str(job))
    assert result.code == 0
    assert "cpu: measured on 1 unit, spread 3 %" in result.out
    kept = json.loads((job.parent / "job.profile.json").read_text())
    assert kept["batch_size"] == 8
    heterps("profile", str(job))
    heterps("profile", str(job), "--force", "--seconds", "20")
    assert [known is not None for known, _ in measuring] == [False, True, False]
    assert [seconds for _, seconds in measuring] == [6.0, 6.0, 20.0]


def test_planning_a_job_without_a_profile_measures_one_and_says_so(heterps, job, measuring):
    result = heterps("plan", str(job), "--json")
    assert result.code == 0, result.err
    assert "has no profile yet: measuring one into" in result.err
    assert len(measuring) == 1


def test_figures_of_another_job_are_told_of(heterps, job, measuring):
    """Types without any as well."""
    heterps("profile", str(job))
    kept = job.parent / "job.profile.json"
    document = json.loads(kept.read_text())
    document["types"]["cpu"]["key"] = "another"
    kept.write_text(json.dumps(document))
    result = heterps("plan", str(job), "--json")
    assert result.code == 0
    assert "job.profile.json is of another model, job or machine for cpu: heterps" in result.err
    loaded = load_job(job)
    document["types"]["cpu"]["key"] = measured_key(loaded, loaded.cluster.types[0])
    kept.write_text(json.dumps(document))
    assert heterps("plan", str(job), "--json").err == ""


def test_a_profile_that_was_not_measured_is_not_lost(heterps, job, measuring):
    (job.parent / "job.profile.json").write_text(json.dumps(profile_of(None)))
    result = heterps("profile", str(job))
    assert result.code == 1
    assert "was not measured: --force replaces it" in result.err


def test_a_job_or_a_run_is_needed_and_not_both(heterps, job):
    assert heterps("profile").code == 2
    assert heterps("profile", str(job), "--from", str(job.parent)).code == 2


def test_what_is_no_run_cannot_be_refitted(heterps, tmp_path):
    result = heterps("profile", "--from", str(tmp_path))
    assert result.code == 1
    assert "is no run folder" in result.err
