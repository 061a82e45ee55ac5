"""The Ray engine on a cluster of one node, which the tests of this file share."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from heterps.errors import InputError, NoRoomError, ProcessError
from heterps.events import read_events
from heterps.runtime.engines.ray.cluster import RayCluster
from heterps.runtime.engines.ray.engine import RayEngine
from heterps.runtime.engines.ray.keeper import PREFIX
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.training import train_run
from heterps.testing.engines import CHECKS, all_ended
from heterps.testing.runs import outcome, run, small_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TYPES = [
    {"name": "cpu", "price_per_hour": 0.04, "limit": 6},
    {"name": "xpu", "price_per_hour": 1.0, "limit": 2, "ray": {"resources": {"XPU": 1}}},
]
SETTINGS = {"engine": "ray", "cluster__types": TYPES, "servers__count": 2}
LONGER = {"workload__epochs": 3, "snapshot__every": 7}


@pytest.fixture(scope="module")
def node():
    """A folder of the node's, with a short path."""
    with tempfile.TemporaryDirectory(prefix="heterps-node-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def job(tmp_path_factory, node):
    data = tmp_path_factory.mktemp("data")
    return small_job(data, "two_emb", (2, 1), **SETTINGS, ray__folder=str(node))


@pytest.fixture(scope="module")
def cluster(job):
    cluster = RayCluster(job)
    yield cluster
    cluster.close()


@pytest.fixture
def make(cluster):
    return partial(RayEngine, cluster=cluster)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_ray_engine_conforms(check, make, tmp_path):
    check(make, tmp_path)


def test_a_run_on_ray_is_the_run_on_the_local_engine_to_the_bit(job, node, cluster, tmp_path):
    _, found = run(job, tmp_path / "ray", None)
    _, expected = run(job.model_copy(update={"engine": "local"}), tmp_path / "local")
    assert found.equals(expected)
    assert list(node.glob(f"{PREFIX}*")) == []


def pid_of(process, node):
    """Of the one whose output goes to the log of that name on the node."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            log = (entry / "fd" / "1").readlink()
            if log.name == f"{process}.log" and log.is_relative_to(node):
                return int(entry.name)
    raise AssertionError(f"no {process}")


def actor_of(process, node):
    """The pid of its keeper's."""
    status = Path(f"/proc/{pid_of(process, node)}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("pid", [pid_of, actor_of])
def test_a_worker_that_is_killed_alone_or_with_its_actor_changes_nothing(pid, node, tmp_path):
    job = small_job(tmp_path, "two_emb", (2, 1), **SETTINGS, ray__folder=str(node), **LONGER)
    victims = ["stage-0-replica-1"]

    def kill(status):
        if victims and status.step >= 20:
            os.kill(pid(victims.pop(), node), signal.SIGKILL)

    setup = prepare(job)
    with RunFolder.create(tmp_path / "ray", setup.job, setup.plan_document()) as folder:
        result = train_run(setup, folder, kill)
    _, expected = run(job.model_copy(update={"engine": "local"}), tmp_path / "local")
    assert outcome(folder).equals(expected)
    assert result.failures == 1
    events = read_events(tmp_path / "ray" / "events.jsonl")
    (failure,) = [event for event in events if event["kind"] == "failure"]
    assert (failure["process"], failure["how"]) == ("stage-0-replica-1", "ended")


@pytest.mark.usefixtures("cluster")
def test_a_folder_that_no_node_can_use_ends_the_run_at_once(job, tmp_path):
    ray = job.ray.model_copy(update={"folder": "/dev/null/here"})
    expected = r"was not started: ray\.folder '/dev/null/here' cannot be used on [\d.]+: Not a dir"
    with pytest.raises(ProcessError, match=expected):
        run(job.model_copy(update={"ray": ray}), tmp_path / "run", None)
    events = read_events(tmp_path / "run" / "events.jsonl")
    assert [event["action"] for event in events if event["kind"] == "failure"] == ["give up"]


@pytest.mark.parametrize("fails", ["init", "nodes"])
def test_a_cluster_that_does_not_come_up_leaves_nothing(job, fails, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise RuntimeError("no")

    calls = []
    ray = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **_: None,
        nodes=fail,
        util=SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1"),
        shutdown=lambda: calls.append("shutdown"),
    )
    setattr(ray, fails, fail)
    monkeypatch.setattr("heterps.runtime.engines.ray.cluster.load_ray", lambda: ray)
    made = tmp_path / "made"
    made.mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(made))
    with pytest.raises((RuntimeError, ProcessError)):
        RayCluster(job)
    assert calls == ["shutdown"]
    assert not made.exists()


def test_who_listens_to_sigterm_goes_on_doing_so(job):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("SIGTERM"))
    try:
        cluster = RayCluster(job)
        os.kill(os.getpid(), signal.SIGTERM)
        cluster.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["SIGTERM"]


def test_a_plan_for_which_there_is_no_room_says_which_bundle_and_what_there_is(make, tmp_path):
    with make(tmp_path) as engine, pytest.raises(InputError) as raised:
        engine.place({f"stage-1-replica-{n}": "xpu" for n in range(3)})
    text = str(raised.value)
    assert "stage-1-replica-2 (a unit of 'xpu', of which the plan has 3) needs" in text
    assert "CPU 1, XPU 1; the cluster has " in text
    assert "XPU 2" in text


@pytest.fixture
def others(cluster):
    """Have one of the two XPUs; a call gives it back."""
    group = cluster.ray.util.placement_group([{"XPU": 1}])
    assert group.wait(30)
    leave = partial(cluster.ray.util.remove_placement_group, group)
    yield leave
    leave()


@pytest.mark.usefixtures("others")
def test_what_others_have_left_is_told_with_who_has_no_room_in_it(
    make, cluster, tmp_path, monkeypatch
):
    impatient = cluster.settings.model_copy(update={"wait_s": 1.0})
    monkeypatch.setattr(cluster, "settings", impatient)
    with make(tmp_path) as engine, pytest.raises(NoRoomError) as raised:
        engine.place({f"stage-1-replica-{n}": "xpu" for n in range(2)})
    text = str(raised.value)
    assert "no room for the plan after 1 s, since others use it: stage-1-replica-1 (a unit" in text
    assert "of 'xpu', of which the plan has 2) needs CPU 1, XPU 1; free are " in text
    assert "XPU 1: wait for them, or raise ray.wait_s" in text


def test_what_others_give_back_is_seen_by_who_waits_for_it(make, cluster, others, tmp_path):
    with make(tmp_path) as engine:
        assert engine.wait_s == cluster.settings.wait_s
        for count, act in ((1, lambda: None), (2, others)):
            act()
            deadline = time.monotonic() + 30
            while engine.limits({})["xpu"] != count and time.monotonic() < deadline:
                engine.look_again(0.2)
            assert engine.limits({})["xpu"] == count


def test_what_others_use_is_not_in_the_limits(make, cluster, tmp_path):
    def limit(engine):
        cluster.look()
        return engine.limits({"w": "xpu"})["xpu"]

    def becomes(engine, count):
        deadline = time.monotonic() + 30
        while limit(engine) != count and time.monotonic() < deadline:
            time.sleep(0.2)
        return limit(engine) == count

    with make(tmp_path) as engine:
        engine.place({"w": "xpu"})
        assert becomes(engine, 2)
        other = cluster.ray.util.placement_group([{"CPU": 1, "XPU": 1}])
        assert other.wait(30)
        assert becomes(engine, 1)
        cluster.ray.util.remove_placement_group(other)
        assert becomes(engine, 2)


HOLDER = """
import sys, time
from pathlib import Path
from heterps.runtime.engines import engines_of
from heterps.testing.engines import spec, told
from heterps.job.load import load_job

folder = Path(sys.argv[1])
with engines_of(load_job(folder / "job.yaml")) as make:
    engine = make(folder)
    for number, verb in enumerate(("sleep", "have a child")):
        told(engine.start(spec(f"p{number}", verb, folder / str(number))), folder / str(number))
    (folder / "ready").touch()
    time.sleep(600)
"""


def test_nothing_is_left_when_the_driver_is_killed(job, tmp_path):
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job.document()))
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)])
    deadline = time.monotonic() + 120
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        assert holder.poll() is None
        time.sleep(0.05)
    pids = [pid for name in "01" for pid in json.loads((tmp_path / name).read_text())]
    holder.kill()
    holder.wait()
    assert all_ended(pids)
