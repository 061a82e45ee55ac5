"""The examples that read from a cluster, with a real server in place of the one they name."""

import shutil
from pathlib import Path

import pytest
import yaml

from heterps.data.synthetic import SynthSpec, synthesise
from heterps.data.writing import aside
from heterps.testing.commands import shell

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clicks")
    synthesise(SynthSpec(2000, 500, slots=3, ids=100, dense=2), folder)
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


def test_a_job_trains_on_ray(clicks: Path, tmp_path: Path):
    """On a cluster that it starts, since there is none to connect to."""
    job = yaml.safe_load((EXAMPLES / "ray" / "job.yaml").read_text())
    assert job["ray"].pop("address") == "auto"
    for part in ("train", "validation"):
        job["data"][part] = str(clicks / part)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    trained = shell("train", str(tmp_path / "job.yaml"), "--out", str(tmp_path / "run"), "--json")
    assert trained.code == 0, trained.err
    assert (tmp_path / "run" / "model" / "manifest.json").exists()
