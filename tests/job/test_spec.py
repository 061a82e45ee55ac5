from pathlib import Path

import pytest
import yaml

from heterps.errors import InputError, UnknownNameError
from heterps.job.load import load_job
from heterps.job.spec import Job
from heterps.job.training import SnapshotSpec, TableEntry

CLUSTER = {"types": [{"name": "cpu", "price_per_hour": 0.04, "limit": 4}]}
WORKLOAD = {"batch_size": 64, "epochs": 1, "micro_batches": 4}
DATA = {"train": "d/*.parquet", "validation": ["v/"], "dense": ["I1"], "sparse": ["C1"]}


def job(**changes: object) -> Job:
    return Job.parse({"cluster": CLUSTER, "workload": WORKLOAD, "data": DATA, **changes})


def test_everything_but_workload_cluster_and_data_has_a_default():
    plain = job()
    assert (plain.optimizer.name, plain.optimizer.lr) == ("adam", 1e-3)
    assert plain.workload.micro_batch_size == 16
    assert (plain.servers.count, plain.dense_sync, plain.engine) == (1, "allreduce", "local")
    assert not plain.security.encrypt


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "workload.samples_per_epoch: is missing"),
        (
            {"workload": WORKLOAD | {"micro_batches": 3}},
            "workload.micro_batches: expected a number that divides batch_size (64), got 3",
        ),
        (
            {"servers": {"type": "cpus"}},
            "servers.type: unknown resource type 'cpus' (known: cpu); did you mean 'cpu'?",
        ),
        ({"engine": "rays"}, "engine: expected local or ray, got 'rays'; did you mean 'ray'?"),
        ({"seed": 2**63}, "seed: expected 9223372036854775807 or less, got 9223372036854775808"),
        ({"dense_sync": "none"}, "dense_sync: expected allreduce or server, got 'none'"),
        ({"data": DATA | {"label": "C1"}}, "data: column 'C1' is the label and an input at once"),
        (
            {"snapshot": {"name": "a"}},
            "snapshot.name: expected the name of a folder in its `to`",
        ),
    ],
)
def test_a_bad_field_is_named(changes, message):
    with pytest.raises(InputError) as caught:
        job(**changes)
    assert str(caught.value) == message


def test_an_unknown_key_is_met_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"optimiser: .*did you mean 'optimizer'\?"):
        job(optimiser={})


def test_the_document_says_everything_and_reads_back():
    spec = job(
        model={"zoo": "ctrdnn", "args": {"dropout": None}},
        tables={"default": {"rule": "adam", "options": {"beta1": 0.8}}},
        optimizer={"name": "sgd", "momentum": 0.9, "schedule": {"kind": "cosine", "warmup": 5}},
        seed=3,
    )
    document = spec.document()
    assert document["validation"] == {"k": 10}
    assert document["model"] == spec.model
    assert Job.parse(document).document() == document


def test_paths_of_the_document_are_absolute_and_urls_stay():
    data = DATA | {"train": ["s3://bucket/d/*.parquet", "/d", "d/*.parquet"]}
    spec = job(data=data, model={"file": "my.py"}, warm_start="runs/a").in_folder("/jobs")
    spec = spec.model_copy(update={"snapshot": SnapshotSpec(to="snaps")}).in_folder("/jobs")
    document = spec.document()
    assert document["snapshot"]["to"] == "/jobs/snaps"
    assert document["data"]["train"] == ["s3://bucket/d/*.parquet", "/d", "/jobs/d/*.parquet"]
    assert document["data"]["validation"] == ["/jobs/v"]
    assert document["model"]["file"] == "/jobs/my.py"
    assert document["warm_start"] == "/jobs/runs/a"
    assert job(data=DATA | {"validation": 0.1}).document()["data"]["validation"] == 0.1


def test_the_example_has_every_key():
    spec = load_job(Path(__file__).parents[2] / "examples/training/job.yaml")
    records = [spec, spec.workload, spec.validation, spec.servers, spec.wire, spec.clip]
    records += [spec.tables["default"], spec.optimizer.schedule]
    elsewhere = {"profile", "plan"}
    for record in records:
        assert type(record).model_fields.keys() - elsewhere <= record.model_fields_set
    assert (
        type(spec.optimizer).model_fields.keys() - {"momentum"} == spec.optimizer.model_fields_set
    )


def test_a_job_that_was_loaded_knows_its_folder(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"cluster": CLUSTER, "workload": WORKLOAD, "data": DATA}))
    loaded = load_job(path)
    assert loaded.folder == str(tmp_path)
    assert loaded.with_samples(10).folder == str(tmp_path)
    assert "folder" not in loaded.document()


def test_samples_of_the_data_count_unless_the_job_says_how_many():
    assert job().with_samples(1000).workload.samples == 1000
    said = job(workload=WORKLOAD | {"samples_per_epoch": 50, "epochs": 2})
    assert said.with_samples(1000).workload.samples == 100


def test_tables_that_are_not_named_are_as_the_default():
    wide, rest = {"dim": 32, "lr": 0.1}, {"rule": "sgd"}
    entries = job(tables={"wide": wide, "default": rest}).tables_of({"wide": 32, "narrow": 8})
    assert entries == {"wide": TableEntry(**wide), "narrow": TableEntry(**rest)}
    assert job().tables_of({"a": 4}) == {"a": TableEntry()}


def test_a_table_of_another_width_or_name_is_refused():
    with pytest.raises(InputError) as caught:
        job(tables={"default": {"dim": 16}}).tables_of({"default": 8})
    assert str(caught.value) == (
        "tables.default.dim: the model's table 'default' has rows of 8, not 16: "
        "change model.args, or leave dim out"
    )
    with pytest.raises(UnknownNameError, match=r"tables\.wid: .* did you mean 'wide'"):
        job(tables={"wid": {}}).tables_of({"wide": 8})
