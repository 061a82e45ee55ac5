"""The examples that read from a cluster, with a real server in place of the one they name."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from heterps.data.synthetic import SynthSpec, synthesise
from heterps.data.writing import aside
from heterps.job.load import load_job
from heterps.runtime.engines.ray.bundles import Node, bundles_of
from heterps.storage.places import Url
from heterps.testing.commands import shell

pytestmark = pytest.mark.slow
ROWS = 2000
EXAMPLES = Path(__file__).parents[1] / "examples"
MANIFEST = yaml.safe_load((EXAMPLES / "ray" / "rayjob.yaml").read_text())["spec"]


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clicks")
    synthesise(SynthSpec(ROWS, 500, slots=3, ids=100, dense=2), folder)
    return folder


@pytest.mark.parametrize("name", ["hdfs", "s3"])
def test_a_job_trains_from_a_cluster_and_writes_to_it(
    name: str, clicks: Path, tmp_path: Path, request: pytest.FixtureRequest
):
    there = request.getfixturevalue(name)
    job = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text())
    for part in ("train", "validation"):
        with aside(f"{there}/{part}/part-00000.parquet") as local:
            shutil.copy(clicks / part / "part-00000.parquet", local)
        job["data"][part] = f"{there}/{part}" + job["data"][part].rpartition(part)[2]
    job["snapshot"] = {"to": f"{there}/snapshots", "every": 3}
    if name == "s3":
        endpoint = request.getfixturevalue("s3_server").endpoint
        job["data"]["storage"]["s3"]["endpoint_url"] = endpoint
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    run = str(tmp_path / "run")
    trained = shell("train", str(tmp_path / "job.yaml"), "--out", run, "--json")
    assert trained.code == 0, trained.err
    if name == "hdfs":
        assert list((tmp_path / "cache").glob("*.range"))
    (found,) = shell("snapshot", "verify", run, "--json").lines
    assert found["snapshots"], "none was written"
    assert all(held["whole"] for held in found["snapshots"])
    scores = f"{there}/scores.parquet"
    predicted = shell("predict", run, f"{there}/validation", "--out", scores, "--json")
    assert predicted.lines == [{"run": run, "out": scores, "rows": 500}], predicted.err


def test_a_job_trains_on_what_arrives_until_its_end_is_marked(
    clicks: Path, tmp_path: Path, hdfs: str
):
    example = (EXAMPLES / "data" / "follow.yaml").read_text()
    job = yaml.safe_load((EXAMPLES / "hdfs" / "job.yaml").read_text()) | {"snapshot": {}}
    job |= yaml.safe_load(example.replace("hdfs://namenode:8020", hdfs))
    job["workload"]["epochs"] = 9
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    for part, folder in (("train", "arriving"), ("validation", "validation")):
        Url(f"{hdfs}/clicks/{folder}/a.parquet").put(clicks / part / "part-00000.parquet")
    for name in ("a.parquet.done", "_END"):
        Url(f"{hdfs}/clicks/arriving/{name}").write_text("")
    trained = shell("train", str(tmp_path / "job.yaml"), "--out", str(tmp_path / "run"), "--json")
    assert trained.code == 0, trained.err
    (line,) = (tmp_path / "run" / "arrivals.jsonl").read_text().splitlines()
    arrival = json.loads(line)
    assert len(arrival.pop("versions")) == 1
    assert arrival == {"arrival": 0, "files": ["a.parquet"], "samples": ROWS}


def test_a_job_trains_on_ray(clicks: Path, tmp_path: Path):
    """As the manifest says, on a cluster that it starts: there is none to connect to."""
    job = yaml.safe_load((EXAMPLES / "ray" / "job.yaml").read_text())
    assert job["ray"].pop("address") == "auto"
    for part in ("train", "validation"):
        job["data"][part] = str(clicks / part)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    here = {"/job/job.yaml": str(tmp_path / "job.yaml"), "/runs/first": str(tmp_path / "run")}
    program, *command = MANIFEST["entrypoint"].split()
    assert program == "heterps"
    trained = shell(*(here.get(word, word) for word in command), "--json")
    assert trained.code == 0, trained.err
    assert (tmp_path / "run" / "model" / "manifest.json").exists()


def pods():
    """Of the manifest for Kubernetes: what Ray is told to offer on each, and its environment."""
    cluster = MANIFEST["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        own = group["rayStartParams"]
        custom = json.loads(own.get("resources", '"{}"').strip('"').replace("\\", ""))
        offered = {"CPU": float(own["num-cpus"]), **custom}
        labels = dict(pair.split("=") for pair in own.get("labels", "").split(",") if pair)
        (container,) = group["template"]["spec"]["containers"]
        assert float(container["resources"]["limits"]["cpu"]) == offered["CPU"]
        yield offered, labels, {each["name"]: each["value"] for each in container["env"]}


def test_the_pods_of_the_manifest_offer_what_the_job_needs():
    job = load_job(EXAMPLES / "ray" / "job.yaml")
    nodes = [Node("", "", offered, labels) for offered, labels, _ in pods()]
    for bundle in bundles_of(job).values():
        assert any(bundle.fits(node) for node in nodes), bundle.text


def test_only_the_head_of_the_manifest_has_volumes():
    """A claim for one node would keep pods on others from starting."""
    cluster = MANIFEST["rayClusterSpec"]
    head = cluster["headGroupSpec"]["template"]["spec"]
    mounted = {each["name"] for each in head["containers"][0]["volumeMounts"]}
    assert mounted == {each["name"] for each in head["volumes"]} == {"job", "runs"}
    for group in cluster["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        assert "volumes" not in pod
        assert all("volumeMounts" not in container for container in pod["containers"])


def test_the_pods_of_the_manifest_have_the_settings_of_nodes_on_premises():
    said = (EXAMPLES / "ray" / "nodes.sh").read_text()
    expected = dict(re.findall(r"^export (RAY_\w+)=(\w+)", said, re.MULTILINE))
    assert MANIFEST["rayClusterSpec"]["authOptions"]["mode"] == expected.pop("RAY_AUTH_MODE")
    assert all(environment == expected for _, _, environment in pods())
