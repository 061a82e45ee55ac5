import json

import pytest

from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.testing.runs import small_job


@pytest.fixture
def run(tmp_path):
    setup = prepare(small_job(tmp_path, "two_emb", (2, 1)))
    with RunFolder.create(tmp_path / "run", setup.job, setup.plan_document()) as folder:
        return str(folder.path)


def test_limits_are_said_and_shown(heterps, run):
    assert heterps("scale", run, "cpu=4").out == f"limits of {run}: cpu=4\n"
    assert json.loads(heterps("scale", run, "cpu=5", "--json").out)["limits"] == {"cpu": 5}


def test_a_run_that_nobody_coordinates_does_not_hear_of_them(heterps, run):
    with RunFolder.open(run) as folder:
        folder.lock()
        assert heterps("scale", run, "cpu=4").err == ""
    with folder.events() as events:
        events.write("ended")
    found = heterps("scale", run, "cpu=4")
    said = "the run is done, and nobody is there to follow them until `heterps resume"
    assert (found.code, f"note: {said} {run}` goes on with it\n") == (0, found.err)


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=-1", "cpu=many"])
def test_what_is_no_limit_is_refused(heterps, run, text):
    found = heterps("scale", run, "--", text)
    assert found.code == 1
    assert f"expected TYPE=UNITS such as cpu=8, got '{text}'" in found.err


def test_a_folder_that_is_no_run_is_refused(heterps, tmp_path):
    assert "is no run folder" in heterps("scale", str(tmp_path), "cpu=4").err
