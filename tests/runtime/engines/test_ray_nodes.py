"""A head and a node that `examples/ray/nodes.sh` starts, on two addresses of this machine."""

import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from heterps.data.synthetic import SynthSpec, synthesise
from heterps.processes import Child, stop_all
from heterps.testing.commands import shell
from heterps.testing.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "ray"
NODE = "127.0.0.2"
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def home():
    """Of a person who has never used Ray, with a short path."""
    with tempfile.TemporaryDirectory(prefix="heterps-home-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def head(home):
    """The address of the head. It has the same resources as the node, and no labels."""
    own = ["--port", str(free_ports(1)[0]), "--num-cpus=4", '--resources={"XPU": 2}']
    own += [f"--temp-dir={home}/ray", "--include-dashboard=false"]
    with ExitStack() as closing:
        said = started(closing, home, *own)
        address = re.findall(r"--address='([\d.]+:\d+)'", said)[0]
        started(closing, home, address, "--num-cpus=2", f"--node-ip-address={NODE}")
        yield address


def started(closing, home, *arguments):
    """What the script has said by the time that Ray runs."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    more = ["--block", "--object-store-memory=100000000"]
    command = ["sh", str(EXAMPLE / "nodes.sh"), *arguments, *more]
    log = home / f"node-{len(list(home.glob('*.log')))}.log"
    variables = {"HOME": str(home), "PATH": programs, "RAY_raylet_start_wait_time_s": "120"}
    child = Child("heterps.testing.execute", command, log, variables)
    closing.callback(stop_all, [child], 10.0)
    deadline = time.monotonic() + PATIENCE_S
    while "Ray runtime started" not in (said := log.read_text()):
        assert child.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    return said


@pytest.fixture
def person(home, head, monkeypatch):
    """Who trains where the cluster is."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def write_job(tmp_path):
    """The example, with data that are here."""
    synthesise(SynthSpec(2000, 500, slots=3, ids=100, dense=2), tmp_path / "clicks")

    def write(**ray):
        job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
        for part in ("train", "validation"):
            job["data"][part] = str(tmp_path / "clicks" / part)
        job["ray"] |= ray
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(job))
        return file

    return write


def train(file):
    return shell("train", str(file), "--out", str(file.parent / "run"), "--json")


def refused(file):
    """The one line that is said."""
    done = train(file)
    assert done.code == 1
    return done.err.strip().splitlines()[-1]


def test_the_token_that_the_head_has_made_is_its_users_alone(home, head):
    assert (home / ".ray" / "auth_token").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("person")
def test_a_job_trains_on_the_cluster_that_its_address_names(head, write_job):
    file = write_job(address=head)
    trained = train(file)
    assert trained.code == 0, trained.err
    assert (file.parent / "run" / "model" / "manifest.json").exists()


PLACES = """
import sys
from pathlib import Path
from heterps.errors import InputError
from heterps.job.load import load_job
from heterps.runtime.engines.ray.cluster import RayCluster
from heterps.runtime.engines.ray.engine import RayEngine

cluster = RayCluster(load_job(sys.argv[1]))
for count in (2, 3):
    with RayEngine(Path(sys.argv[1]).parent, cluster) as engine:
        try:
            sites = engine.place(dict.fromkeys("abc"[:count], "xpu"))
            print(*[site.host for site in sites.values()])
        except InputError as error:
            print(error)
cluster.close()
"""


@pytest.mark.usefixtures("person")
def test_units_with_a_label_are_on_the_node_that_has_it_and_nowhere_else(head, write_job):
    file = write_job(address=head, wait_s=2)
    command = [sys.executable, "-c", PLACES, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    two, three = done.stdout.splitlines()
    assert two == f"{NODE} {NODE}"
    assert "the cluster lacks what the plan needs: c (a unit of 'xpu'" in three


RAYLETS = """
import sys
from pathlib import Path
from heterps.job.load import load_job
from heterps.runtime.engines.ray.cluster import RayCluster
from heterps.runtime.engines.ray.engine import RayEngine
from heterps.testing.engines import spec, told

folder = Path(sys.argv[1]).parent
cluster = RayCluster(load_job(sys.argv[1]))
with RayEngine(folder, cluster) as engine:
    engine.place({"placed": "xpu"})
    for name in ("placed", "one", "two", "three", "four"):
        handle = engine.start(spec(name, "tell", folder / name))
        print(told(handle, folder / name)["environment"]["RAY_RAYLET_PID"])
cluster.close()
"""


@pytest.mark.usefixtures("person")
def test_what_was_not_placed_is_on_the_node_of_the_run(head, write_job):
    command = [sys.executable, "-c", RAYLETS, str(write_job(address=head))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    placed, *others = done.stdout.split()
    assert len(others) == 4
    assert set(others) - {placed} == {others[0]}
    assert placed not in others


@pytest.mark.usefixtures("person")
def test_who_has_no_token_is_told_where_it_belongs(head, write_job, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    said = refused(write_job(address=head))
    assert f"ray.address: cannot join the Ray cluster at '{head}'" in said
    assert "copy ~/.ray/auth_token from the head" in said


def test_an_address_where_nobody_is_is_named(write_job, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    assert f"ray.address: no Ray cluster answers at '{address}'" in refused(
        write_job(address=address)
    )


@pytest.mark.usefixtures("person")
def test_a_host_that_is_not_there_is_told_at_once_where_a_head_is_on_this_one(head, write_job):
    address = f"nobody.invalid:{head.rpartition(':')[2]}"
    said = refused(write_job(address=address))
    assert f"no Ray cluster answers at '{address}' (nobody listens there)" in said


@pytest.mark.parametrize("named", ["in the job", "as auto", "by the environment alone"])
def test_the_address_of_a_client_is_refused(named, write_job, monkeypatch):
    client = "ray://127.0.0.1:10001"
    monkeypatch.setenv("RAY_ADDRESS", "" if named == "in the job" else client)
    address = {"in the job": client, "as auto": "auto"}.get(named)
    assert f"ray.address: '{client}' is a client's" in refused(write_job(address=address))
