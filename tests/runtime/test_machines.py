"""Training across three machines that share neither disk nor memory, with a Ray node on each."""

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import fsspec
import pytest
import yaml

from heterps.events import read_events
from heterps.runtime.run_folder import RunFolder
from heterps.testing.hdfs import Hdfs
from heterps.testing.machines import RayMachines, Wires
from heterps.testing.namespaces import NamespaceError
from heterps.testing.runs import outcome, run, small_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TYPES = [
    {"name": "one", "price_per_hour": 0.04, "limit": 2, "ray": {"resources": {"one": 1}}},
    {"name": "two", "price_per_hour": 0.08, "limit": 3, "ray": {"resources": {"two": 1}}},
]
# The servers fit on the first only; the second can be done without.
RESOURCES = [{"CPU": 4, "two": 2}, {"CPU": 2, "one": 1}, {"CPU": 4, "one": 1, "two": 1}]
WIRES = Wires(delay_ms=3.0, mbps=1000.0)
PATIENCE_S = 900.0  # on a busy host the processes of a run take minutes to start again


@pytest.fixture(scope="module")
def machines(lacking):
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hm-"))
        disk = Path(folder)  # with a short path, for Ray's unix sockets
        made = entered(stack, disk, lacking)
        made.start_ray()
        yield made


def entered(stack, disk, lacking):
    """With long wires, or short ones where the kernel has no tun devices."""
    for wires in (WIRES, None):
        try:
            return stack.enter_context(RayMachines(disk, RESOURCES, wires))
        except NamespaceError as error:
            why = error
    return lacking(f"needs namespaces: {why}")


def make_job(folder, **changes):
    """Two replicas of the first stage, one of the second, and two parameter servers."""
    job = small_job(folder, "two_emb", (2, 1), cluster__types=TYPES, **changes)
    document = job.document()
    for stage, name in enumerate(("one", "two")):
        document["plan"]["stages"][stage]["type"] = name
    return type(job).parse(document | {"servers": {"count": 2, "type": "two"}})


def at_hdfs(job, url):
    """The same job with its files there, and snapshots to be written there."""
    file_system, path = fsspec.core.url_to_fs(url)
    for file in Path(job.data.train[0]).parent.glob("*.parquet"):
        file_system.makedirs(f"{path}/in", exist_ok=True)
        file_system.pipe_file(f"{path}/in/{file.name}", file.read_bytes())
    document = job.document()
    document["data"]["train"] = f"{url}/in/*.parquet"
    document["snapshot"]["to"] = f"{url}/snapshots"
    return type(job).parse(document)


def write_job(machines, job, name, folder):
    """To the first machine. Data that are in ``folder`` of ours are on the disk of each."""
    disk = machines[0].disk
    document = job.document() | {"engine": "ray", "ray": {"folder": str(disk / "node")}}
    text = yaml.safe_dump(document)
    data = Path(job.data.train[0]).parents[1]
    if data.is_relative_to(folder):
        text = text.replace(str(data), str(disk / f"{name}-data"))
        for machine in machines.all:
            machine.copy(data, f"{name}-data")
    file = folder / "ray.yaml"
    file.write_text(text)
    machines[0].copy(file, f"{name}.yaml")


def started(machines, job, name, folder):
    """``heterps train`` of a job on the first machine."""
    disk = machines[0].disk
    write_job(machines, job, name, folder)
    return run_python(machines, *train_command(disk, name))


def train_command(disk, name):
    command = ["train", str(disk / f"{name}.yaml"), "--out", str(disk / name), "--json"]
    return ["-m", "heterps", *command]


def submission():
    """The line of the document."""
    lines = (Path(__file__).parents[2] / "docs" / "ray.md").read_text().splitlines()
    return next(line for line in lines if line.startswith("ray job submit"))


def run_python(machines, *arguments):
    return run_here(machines, sys.executable, *arguments)


def run_here(machines, *command):
    """On the first machine."""
    environment = {**machines.environment, "HOME": str(machines[0].disk)}
    environment["RAY_API_SERVER_ADDRESS"] = machines.dashboard
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return machines[0].start(*command, environment=environment, **pipes)


def said_by(process):
    """All that it said, once it has ended well; none is left behind for later tests."""
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.stdout.close()
        process.wait()
        raise
    assert process.returncode == 0, said
    return said


def ended(machines, process, name, to):
    """What came of it, and what happened."""
    said_by(process)
    machines[0].take(name, to)
    kinds = ("failure", "replanned", "warning", "snapshot_failed")
    events = [event for event in read_events(to / "events.jsonl") if event["kind"] in kinds]
    return outcome(RunFolder.open(to)), events


def await_event(machines, process, name, kind, times=1):
    deadline = time.monotonic() + PATIENCE_S
    path = machines[0].ours(f"{name}/events.jsonl")
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            if sum(event["kind"] == kind for event in read_events(path)) >= times:
                return
        time.sleep(0.05)
    raise AssertionError(f"no sign of '{kind}'")


LINKS = """
import sys
from heterps.job.load import load_job
from heterps.runtime.engines import engines_of
from heterps.runtime.profiling.links import find_neighbours
job = load_job(sys.argv[1])
with engines_of(job) as make_engine:
    for entry in job.cluster.types:
        found = find_neighbours(job, entry, make_engine)
        print("link", entry.name, found.link.ms, found.link.mbps, *found.servers_on)
        print("hosts", entry.name, *sorted(found.hosts.items()))
"""


def test_what_lies_between_machines_is_measured(machines, tmp_path):
    """The servers take all of the first that there is for units of either type."""
    write_job(machines, make_job(tmp_path), "links", tmp_path)
    process = run_python(machines, "-c", LINKS, str(machines[0].disk / "links.yaml"))
    said = said_by(process).splitlines()
    found = [line.split()[1:] for line in said if line.startswith("link ")]
    assert [name for name, *_ in found] == ["one", "two"]
    first, second, third = (machine.address for machine in machines.all)
    for _, ms, mbps, *servers_on in found:
        assert first in servers_on  # and perhaps on the third, where Ray may put one of them
        assert float(mbps) > 0
        if machines.wires is not None:
            assert float(ms) >= WIRES.delay_ms, "no packet is faster than that"
            assert float(mbps) <= 1.1 * WIRES.mbps
    assert [line for line in said if line.startswith("hosts ")] == [
        f"hosts one {(second, 1)} {(third, 1)}",
        f"hosts two {(third, 1)}",
    ]


def test_an_encrypted_run_over_three_machines_is_the_run_on_one(machines, tmp_path):
    """Submitted as a job of Ray's, by the command that the documentation shows."""
    job, disk = make_job(tmp_path, security__encrypt=True), machines[0].disk
    write_job(machines, job, "encrypted", tmp_path)
    command = submission().replace("/data/runs/first", f"{disk}/encrypted")
    prepared = f"cd {disk} && mkdir submitted && mv encrypted.yaml submitted/job.yaml"
    process = run_here(machines, "sh", "-c", f"{prepared} && cd submitted && {command}")
    found, events = ended(machines, process, "encrypted", tmp_path / "run")
    assert events == []
    assert found.distance(run(job, tmp_path / "local")[1]) <= 1e-5


def test_a_machine_that_dies_and_comes_back_changes_the_plan_and_not_the_result(machines, tmp_path):
    """Data come from HDFS, and snapshots go there: no disk is shared."""
    job = make_job(tmp_path, workload__epochs=30, snapshot__every=50)
    with Hdfs(tmp_path / "hdfs", host=machines.here) as server:
        process = started(machines, at_hdfs(job, f"{server.url}/run"), "killed", tmp_path)
        await_event(machines, process, "killed", "snapshot")
        machines[1].kill("raylet")
        await_event(machines, process, "killed", "replanned")
        machines.start_node(1)
        found, events = ended(machines, process, "killed", tmp_path / "run")
    assert not (tmp_path / "run" / "snapshots").exists()
    # Its worker may outlive the raylet for long enough to be missed in time.
    kinds = [event["kind"] for event in events]
    assert kinds in (["replanned"] * 2, ["failure", "replanned", "replanned"])
    assert [event["units"] for event in events if "units" in event] == [[1, 1], [2, 1]]
    assert found.distance(run(job, tmp_path / "local")[1]) <= 1e-5
    left = [line for machine in machines.all for line in machine.processes().values()]
    assert not [line for line in left if "heterps.processes" in line]
