"""Whatever happens to its processes, a synchronous run ends with the same bits."""

import random
import signal
import subprocess

import pytest

from heterps.errors import ProcessError
from heterps.events import read_events
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.snapshot import Snapshots
from heterps.runtime.training import train_run
from heterps.testing.faults import Fault, Faults, dying_engine, full_disk_engine, names_of
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import outcome, small_job
from heterps.testing.snapshots import flip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
REPLICAS, SERVERS = (2, 1), 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def make_job(data, **changes):
    changes = {"workload__epochs": 3, "snapshot__every": 7, **changes}
    own = {"optimizer__name": "adam", "servers__count": SERVERS}
    return small_job(data, "two_emb", REPLICAS, **own, **changes)


def trained(job, path, engine=ForkEngine, report=lambda status: None, notice=lambda line: None):
    setup = prepare(job)
    with RunFolder.create(path, setup.job, setup.plan_document()) as folder:
        result = train_run(setup, folder, report, engine, notice=notice)
    return result, outcome(folder)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return trained(make_job(data), tmp_path_factory.mktemp("run") / "run")[1]


def events(path, kind):
    return [event for event in read_events(path / "events.jsonl") if event["kind"] == kind]


@pytest.mark.parametrize("process", ["stage-0-replica-1", "server-1"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_freezes_changes_nothing(
    data, tmp_path, undisturbed, process, number
):
    delay = random.Random(f"{process} {number}").random() * 0.3
    faults, notes = Faults(Fault(process, 20, number, delay)), []
    path = tmp_path / "run"
    result, found = trained(make_job(data), path, faults.engine, faults.report, notes.append)
    assert result.failures == 1
    assert found.equals(undisturbed)
    (failure,) = events(path, "failure")
    expected = "ended" if number == signal.SIGKILL else "frozen"
    assert (failure["process"], failure["how"]) == (process, expected)
    again = events(path, "ready")[1]
    whole = [at["step"] for at in events(path, "snapshot") if at["time"] <= again["time"]]
    assert again["step"] == whole[-1] >= 7, "from the last snapshot on"
    assert process in notes[0]
    assert "starting again" in notes[0]


def test_many_random_faults_change_nothing(data, tmp_path, undisturbed):
    draw = random.Random(3)
    names = names_of(REPLICAS, SERVERS)
    numbers = [signal.SIGKILL] * 3 + [signal.SIGSTOP]
    steps = sorted(draw.sample(range(1, 70), 4))
    chosen = zip(steps, numbers, strict=True)
    faults = Faults(*(Fault(draw.choice(names), step, n, draw.random()) for step, n in chosen))
    result, found = trained(make_job(data), tmp_path / "run", faults.engine, faults.report)
    assert len(faults.done) == 4
    assert result.failures >= 2, "one may come while all start again because of another"
    assert found.equals(undisturbed)


def test_a_process_that_is_killed_at_its_start_is_started_again(data, tmp_path, undisturbed):
    result, found = trained(make_job(data), tmp_path / "run", dying_engine("server-0", 2))
    assert result.failures == 2
    assert found.equals(undisturbed)


def test_a_server_that_cannot_take_a_gradient_ends_the_run_with_its_reason(data, tmp_path):
    last_of_a_batch = 4 * 9 + 3  # so that nobody has more to send before it commits
    with pytest.raises(ProcessError, match=r"failed: .*No space left on device"):
        trained(make_job(data), tmp_path / "run", full_disk_engine(last_of_a_batch))
    (failure,) = events(tmp_path / "run", "failure")
    assert (failure["how"], failure["action"]) == ("wrong", "give up")


def test_a_run_that_gets_nowhere_is_given_up(data, tmp_path):
    path = tmp_path / "run"
    with pytest.raises(ProcessError, match="'server-1' was ended by SIGKILL"):
        trained(make_job(data, recovery__retries=2), path, dying_engine("server-1", 99))
    assert [event["action"] for event in events(path, "failure")] == [
        *("restart", "restart", "give up")
    ]
    assert events(path, "failed")


def test_a_damaged_snapshot_is_set_aside_and_the_one_before_is_used(data, tmp_path, undisturbed):
    path, notes = tmp_path / "run", []

    def damage(note):
        if not notes:  # of the failure: no process is there any more that writes one
            flip(Snapshots(path).paths()[0] / "dense.safetensors")
        notes.append(note)

    faults = Faults(Fault("stage-1-replica-0", 28))
    _, found = trained(make_job(data), path, faults.engine, faults.report, damage)
    assert found.equals(undisturbed)
    (warning,) = events(path, "warning")
    assert "dense.safetensors: is missing or has changed" in warning["text"]
    assert "going on from step-000000" in warning["text"]
    assert notes[1] == warning["text"]
    assert len(list((path / "snapshots").glob("*.damaged"))) == 1


@pytest.fixture
def small_disk(lacking):
    """Makes a folder one that has room for a few files' names alone."""
    mounted = []

    def mount(path):
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(path)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            lacking("needs the right to mount a tmpfs")
        mounted.append(path)

    yield mount
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_stops_the_snapshot_and_not_the_training(
    data, tmp_path, undisturbed, small_disk
):
    path, notes = tmp_path / "run", []

    def engine(folder):
        small_disk(folder / "snapshots")
        return ForkEngine(folder)

    result, found = trained(make_job(data, snapshot__every=30), path, engine, notice=notes.append)
    assert result.failures == 0
    assert found.equals(undisturbed)
    assert len(events(path, "snapshot_failed")) == 2
    assert events(path, "snapshot") == []
    assert notes[0].startswith("no snapshot was written, training goes on: snapshot ")
    assert "No space left" in notes[0]
    assert list((path / "snapshots").iterdir()) == []
