import json
import shutil

import pytest

from heterps.errors import InputError
from heterps.events import EventLog
from heterps.job.spec import Job
from heterps.report.run_report import read_report
from heterps.runtime.run_folder import RunFolder

ON = {"compute_s": 0.1, "comm_s": 0.05, "alpha": 1.0, "beta": 1.0, "transfer_s": 0.0}
LAYER = {"kind": "fc", "input_bytes": 8, "weight_bytes": 8, "on": {"cpu": ON}}
PROFILE = {"batch_size": 50, "layers": [{"name": "a", **LAYER}, {"name": "b", **LAYER}]}
DOCUMENT = {
    "cluster": {"types": [{"name": "cpu", "price_per_hour": 0.04, "limit": 4}]},
    "workload": {
        "batch_size": 100,
        "epochs": 1,
        "samples_per_epoch": 1000,
        "micro_batches": 2,
        "min_throughput": 10,
    },
    "model": {"zoo": "ctrdnn"},
}
STAGE = {"first": 0, "last": 1, "type": "cpu", "units": 1}
PLAN = {"assignment": ["cpu", "cpu"], "stages": [STAGE]}


def meter(batches):
    """Half a second a batch, of which 0.4 forward, and the rest waiting."""
    seconds = {"train_s": 0.5, "committed_s": 0.5, "forward_s": 0.4, "wait_staleness_s": 0.1}
    return {"batches": float(batches), **{name: s * batches for name, s in seconds.items()}}


def progress(log, batches, **more):
    about = {"step": batches, "samples": 100 * batches, "seconds": 0.5 * batches}
    losses = {"losses": [1.0 / max(batches, 1)], "dollars": 0.5 * batches * 0.04 / 3600}
    log.write("progress", stages=[meter(batches)], **about, **losses, **more)


def make(path, profile=PROFILE, batches=(1, 2, 8), before=(), after=()):
    document = DOCUMENT | ({"profile": profile} if profile else {})
    with RunFolder.create(path, Job.parse(document), PLAN), EventLog(path / "events.jsonl") as log:
        for kind, fields in (("started", {}), ("ready", {}), *before):
            log.write(kind, **fields)
        for count in batches:
            progress(log, count)
        for kind, fields in after:
            log.write(kind, **fields)


def test_predicted_stands_beside_measured(tmp_path):
    make(tmp_path / "a")
    found = read_report(tmp_path / "a")
    (stage,) = found.stages
    assert found.layers == ("a..b (2)",)
    assert (stage.predicted.compute_s, stage.measured.compute_s) == (0.4, pytest.approx(0.4))
    assert stage.errors["compute"] == pytest.approx(0.0)
    assert found.predicted == pytest.approx(250.0)
    assert found.samples_per_s == pytest.approx(200.0)
    assert found.errors["formula"] == pytest.approx(0.25)
    assert found.simulated == pytest.approx(250.0, rel=0.5)
    assert found.dollars_per_million == pytest.approx(0.04 / 3600 / 200 * 1e6)
    assert found.bound.text.startswith("pipeline: ")


def test_a_copied_folder_tells_the_same(tmp_path):
    make(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    one, other = (read_report(tmp_path / name).as_document() for name in "ab")
    assert {**one, "name": "", "path": ""} == {**other, "name": "", "path": ""}


def test_figures_begin_anew_with_every_start(tmp_path):
    again = [("ready", {}), ("progress", {"step": 9, "samples": 900, "stages": [meter(4)]})]
    make(tmp_path / "a", after=[("failure", {"step": 8, "problem": "lost"}), *again])
    found = read_report(tmp_path / "a")
    assert (found.story.starts, len(found.story.troubles)) == (2, 1)
    assert found.stages[0].measured.batches == 4.0


def test_snapshots_and_troubles_are_told(tmp_path):
    events = [
        ("snapshot", {"step": 3, "stall_s": 0.1}),
        ("snapshot", {"step": 6, "stall_s": 0.2}),
        ("oversubscribed", {}),
        ("slow_replica", {"process": "stage-0-replica-1", "times": 2.0}),
        ("drift", {"step": 5, "ratio": 0.5}),
        ("replanned", {}),
    ]
    make(tmp_path / "a", after=events)
    story = read_report(tmp_path / "a").story
    assert (story.snapshots, story.last_snapshot) == (2, 6)
    assert story.stall_s == pytest.approx(0.3)
    assert (story.replans, story.oversubscribed) == (1, True)
    assert story.troubles == [
        "stage-0-replica-1 took 2.0 times as long as its peers",
        "step 5: 50% of the predicted throughput",
    ]


def test_without_a_profile_what_was_measured_is_told(tmp_path):
    make(tmp_path / "a", profile=None)
    found = read_report(tmp_path / "a")
    assert (found.layers, found.predicted, found.simulated) == (("0..1",), None, None)
    assert found.samples_per_s == pytest.approx(200.0)
    assert found.stages[0].errors["compute"] is None


def test_a_run_that_has_just_begun_or_is_damaged_is_no_error(tmp_path):
    make(tmp_path / "a", batches=())
    (tmp_path / "a/plan.json").write_text("[")
    with (tmp_path / "a/events.jsonl").open("a") as file:
        file.write('{"kind": "progress", "stages": [3], "time": 1, "step": 2, "samples": "x"}\n[')
    found = read_report(tmp_path / "a")
    assert (found.stages, found.bound, found.samples_per_s) == ((), None, None)
    with pytest.raises(InputError, match=r"is no run folder: it holds no job\.yaml"):
        read_report(tmp_path)


def test_a_folder_with_a_job_of_someones_own_is_no_run(tmp_path):
    (tmp_path / "job.yaml").write_text(json.dumps(DOCUMENT))
    with pytest.raises(InputError, match=r"is no run folder: it holds a job\.yaml that no run has"):
        read_report(tmp_path)
