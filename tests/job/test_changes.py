import json

import pytest
import yaml

from heterps.errors import InputError
from heterps.job.load import load_job
from heterps.testing.tiny import plain_problem

DOCUMENT = plain_problem().as_document()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps(DOCUMENT["cluster"]))
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT | {"cluster": "cluster.json"}))
    return file


def test_a_field_is_replaced_or_added(path):
    path.write_text(path.read_text() + "tables:\n")
    changes = ["workload.epochs=2.5", "optimizer.lr=1e-2", "tables.default.rule=sgd", "seed=7"]
    job = load_job(path, changes)
    assert (job.workload.epochs, job.optimizer.lr, job.seed) == (2.5, 0.01, 7)
    assert job.tables["default"].rule == "sgd"


def test_entries_of_lists_go_by_number_or_name(path):
    job = load_job(path, ["cluster.types.cpu.limit=3", "cluster.types[1].limit=1"])
    assert [entry.limit for entry in job.cluster.types] == [3, 1]


def test_another_file_may_be_named_for_a_part(path):
    other = {"types": [DOCUMENT["cluster"]["types"][0]]}
    (path.parent / "other.json").write_text(json.dumps(other))
    job = load_job(path, ["cluster.types.cpu.limit=2", "cluster=other.json"])
    assert job.cluster.names == ("cpu",)
    assert job.cluster.types[0].limit == 2


def test_a_pattern_needs_no_quotes(path):
    data = {"train": "a.parquet", "label": "y", "sparse": ["C1"]}
    path.write_text(json.dumps(DOCUMENT | {"data": data}))
    job = load_job(path, ["data.train=*.parquet"])
    assert job.document()["data"]["train"] == [str(path.parent / "*.parquet")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("workload.epochs", "--set: expected path=value such as workload.epochs=2"),
        ("=3", "--set: expected path=value"),
        ("workload..epochs=3", "--set: expected path=value"),
        ("workload.epoch=3", "--set workload.epoch: unknown key .* did you mean 'epochs'"),
        ("workload.epochs=no", "--set workload.epochs: expected a number, got False"),
        ("seed.x=3", "--set seed: is 0, which has no field 'x'"),
        ("cluster.types.cpus.limit=3", "--set cluster.types: unknown entry 'cpus' .* 'cpu'"),
        ("seed=[", "--set seed:1: is not YAML"),
    ],
)
def test_a_change_that_leads_nowhere_is_refused_in_one_line(path, change, message):
    with pytest.raises(InputError, match=message) as caught:
        load_job(path, ["seed=0", change])
    assert "\n" not in str(caught.value)
