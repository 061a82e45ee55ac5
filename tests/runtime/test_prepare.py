"""What is wrong with a job is said in one line, before a process is started."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heterps.data.source import find_files
from heterps.errors import InputError
from heterps.runtime.prepare import prepare
from heterps.testing.runs import SMALL, make_data, small_job, stages
from heterps.testing.samples import with_texts

pytestmark = pytest.mark.slow
GPU = {"name": "gpu", "device": "cuda", "price_per_hour": 2.0, "limit": 4}
CPU = {"name": "cpu", "price_per_hour": 0.04, "limit": 4}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def refused(job, **options):
    """The one line that says why; nothing of it is an accident."""
    with pytest.raises(InputError) as caught:
        prepare(job, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_a_job_that_can_run(data):
    setup = prepare(small_job(data, "ctrdnn", (3, 2, 1), workload__epochs=1.5))
    assert [stage.units for stage in setup.layout.stages] == [3, 2, 1]
    assert setup.layout.train.samples == 800
    assert setup.layout.batches == 42  # of 28 in an epoch
    assert setup.metric == "auc"
    first, second, third = setup.layout.stages
    assert first.before is third.after is None
    assert first.after == second.before
    assert second.after == third.before
    assert "label" in first.after.names
    assert "label" not in first.after.gradients


def test_a_share_of_an_epoch_is_no_batch_more_than_it_says(data):
    job = small_job(data, "ctrdnn", workload__epochs=1.0)
    batches = prepare(job).layout.batches
    share = 7 / batches * 1.0000000001
    assert prepare(small_job(data, "ctrdnn", workload__epochs=share)).layout.batches == 7


def test_limits_that_make_micro_batches_short_are_told(data):
    assert not prepare(small_job(data, "ctrdnn")).warnings
    types = [{**CPU, "limit": 480}]
    (warning,) = prepare(small_job(data, "ctrdnn", cluster={"types": types})).warnings
    assert "holds 2 samples on average, not 8: each is of one of 480 lanes" in warning
    assert warning.endswith("lower the largest cluster.types[].limit")
    (warning,) = prepare(small_job(data, "ctrdnn", workload__batch_size=1024)).warnings
    assert warning.endswith("lower workload.batch_size")


@pytest.mark.parametrize("model", SMALL)
def test_small_models_have_as_many_layers_as_they_say(data, model):
    assert len(prepare(small_job(data, model)).chain.layers) == SMALL[model].layers


def test_every_unit_and_server_is_paid(data):
    types = [CPU, {**CPU, "name": "big", "price_per_hour": 1.0}]
    changes = {"cluster": {"types": types}, "servers": {"count": 3, "type": "big"}}
    changes["workload__overhead_per_hour"] = 0.5
    setup = prepare(small_job(data, "ctrdnn", (2, 2), **changes))
    assert setup.dollars_per_hour == pytest.approx(4 * 0.04 + 3 * 1.0 + 0.5)


@pytest.mark.parametrize("part", ["model", "data"])
def test_a_job_without_model_or_data_is_refused(data, part):
    job = small_job(data, "ctrdnn", workload__samples_per_epoch=10)
    assert f"{part}: is missing" in refused(job.model_copy(update={part: None}))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def build():\n    return 1 / 0\n", "my.py:2: ZeroDivisionError: division by zero"),
        ("def build(:\n", "my.py:1: is not Python"),
        ("import nothing_of_the_kind\n", "nothing_of_the_kind"),
        ("def build():\n    return 3\n", "expected a heterps Chain"),
        ("def other():\n    pass\n", "model.function"),
    ],
)
def test_a_model_function_that_fails_is_named_with_its_line(data, tmp_path, code, said):
    (tmp_path / "my.py").write_text(code)
    assert said in refused(small_job(data, "ctrdnn", model={"file": str(tmp_path / "my.py")}))


def test_a_layer_that_fails_on_the_data_is_named(data, tmp_path):
    code = """
from torch import nn
from heterps.models import Chain, LogLoss, SparseEmbedding
def build(slots):
    layers = [SparseEmbedding(slots, 4), nn.Linear(5, 1), LogLoss()]
    return Chain([(f"layer{n}", layer) for n, layer in enumerate(layers)])
"""
    (tmp_path / "my.py").write_text(code)
    plan = stages(3, (), (1,))
    line = refused(small_job(data, "ctrdnn", model={"file": str(tmp_path / "my.py")}, plan=plan))
    assert "layer1" in line


def test_a_model_for_other_columns_is_refused(data):
    line = refused(small_job(data, "ctrdnn", model={"zoo": "matchnet"}, plan=stages(16, (), (1,))))
    assert "user" in line


@pytest.mark.parametrize(
    ("field", "value"),
    [("data__dense", ["I1", "I9"]), ("data__sparse", ["C1", "C9"]), ("data__label", "clicked")],
)
def test_a_column_that_is_not_there_is_named(data, field, value):
    missing = value if isinstance(value, str) else value[-1]
    line = refused(small_job(data, "ctrdnn", **{field: value}))
    assert f"'{missing}'" in line
    assert field.replace("__", ".") in line


def broken_copy(data, folder, change):
    """The training files, the first of them changed; a job that reads them."""
    for number, path in enumerate(sorted((make_data(data, "clicks") / "train").iterdir())):
        content = path.read_bytes()
        (folder / path.name).write_bytes(content if number else change(content))
    return small_job(data, "ctrdnn", data__train=str(folder / "*.parquet"))


@pytest.mark.parametrize(
    "change",
    [lambda content: content[:-100], lambda content: b"", lambda content: b"PAR1 or so"],
    ids=["truncated", "empty", "other"],
)
def test_a_file_that_cannot_be_read_is_named(data, tmp_path, change):
    assert "part-00000.parquet" in refused(broken_copy(data, tmp_path, change))


def test_a_file_with_damaged_rows_is_named(data, tmp_path):
    def damage(content):
        return content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :]

    assert "part-00000.parquet" in refused(broken_copy(data, tmp_path, damage))


def test_a_pattern_that_finds_nothing_is_refused(data):
    assert "data.train" in refused(small_job(data, "ctrdnn", data__train="no/*.parquet"))
    assert "data.validation" in refused(small_job(data, "ctrdnn", data__validation="no/*.parquet"))


def test_labels_of_a_binary_model_are_0_and_1(data, tmp_path):
    path = next((make_data(data, "clicks") / "train").iterdir())
    table = pq.read_table(path)
    labels = pa.array([2.0] + [1.0] * (table.num_rows - 1))
    at = table.schema.get_field_index("label")
    pq.write_table(table.set_column(at, "label", labels), tmp_path / "other.parquet")
    line = refused(small_job(data, "ctrdnn", data__train=str(tmp_path / "*.parquet")))
    assert "expected the labels 0 and 1, got 2" in line
    assert "other.parquet" in line


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (stages(11, (), (1,)), "plan.stages: are for 11 layers, the model has 12"),
        ({"stages": [{"first": 1, "last": 11, "type": "cpu", "units": 1}]}, "plan.stages[0]"),
        ({"stages": [{"first": 0, "last": 11, "type": "cqu", "units": 1}]}, "plan.stages[0].type"),
        ({"stages": [{"first": 0, "last": 11, "type": "cpu", "units": 0}]}, "plan.stages[0].units"),
        ({"stages": []}, "plan.stages"),
        ({}, "plan.stages"),
        (stages(12, (6,), (1, 5)), "plan.stages[1].units: 5 replicas share 4 micro-batches"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(data, plan, said):
    assert said in refused(small_job(data, "ctrdnn", plan=plan))
    assert said in refused(small_job(data, "ctrdnn"), plan=plan)


@pytest.mark.parametrize("replicas", [(17,), (9, 8)])
def test_a_plan_of_more_units_than_there_are_is_refused(data, replicas):
    job = small_job(data, "ctrdnn", replicas, workload__staleness=1)
    line = refused(job)
    assert "plan.stages" in line
    assert "17" in line
    assert "limit" in line


def test_a_job_with_neither_plan_nor_profile_is_refused(data):
    assert "profile: is missing" in refused(small_job(data, "ctrdnn", plan=None))


def test_a_profile_of_another_model_is_refused(data):
    names = [name for name, _ in prepare(small_job(data, "ctrdnn")).chain.layers]
    times = {"cpu": {"compute_s": 1e-3, "comm_s": 1e-4}}
    layers = [{"name": name, "kind": "fc", "times": times} for name in names]
    for wrong in (layers[:-1], [*layers[:3], {**layers[3], "name": "other"}, *layers[4:]]):
        profile = {"batch_size": 32, "layers": wrong}
        assert "profile" in refused(small_job(data, "ctrdnn", profile=profile))


def test_a_gpu_type_needs_a_gpu_only_where_the_plan_uses_it(data):
    cluster = {"types": [CPU, GPU]}
    prepare(small_job(data, "ctrdnn", cluster=cluster))
    plan = {"stages": [{"first": 0, "last": 11, "type": "gpu", "units": 1}]}
    line = refused(small_job(data, "ctrdnn", cluster=cluster, plan=plan))
    assert "cluster.types.gpu.device: this machine has no cuda device" in line


def test_an_optimizer_that_the_servers_do_not_have_is_refused(data):
    changes = {"dense_sync": "server", "optimizer": {"name": "rmsprop", "lr": 0.1}}
    assert "optimizer.name" in refused(small_job(data, "ctrdnn", **changes))


@pytest.mark.parametrize("option", ["momentum", "weight_decay"])
def test_an_option_that_the_servers_do_not_have_is_refused(data, option):
    optimizer = {"name": "sgd", "lr": 0.1, option: 0.5}
    line = refused(small_job(data, "ctrdnn", dense_sync="server", optimizer=optimizer))
    assert f"optimizer.{option}: the parameter servers, which dense_sync names, have no" in line


def test_dense_weights_on_the_servers_are_float32(data):
    line = refused(small_job(data, "ctrdnn", dense_sync="server", dtype="float64"))
    assert "dtype: the parameter servers, which dense_sync names, have no float64" in line


def test_a_run_without_a_batch_is_refused(data):
    assert "workload.epochs" in refused(small_job(data, "ctrdnn", workload__epochs=0))


def test_a_table_that_the_model_does_not_have_is_refused(data):
    assert "tables.narow" in refused(small_job(data, "two_emb", tables={"narow": {"lr": 0.1}}))


def test_a_metric_of_another_task_is_refused(data):
    assert "validation.metric" in refused(small_job(data, "nce", validation={"metric": "auc"}))


@pytest.mark.parametrize("given", ["no-run", "weights.pt"])
def test_a_warm_start_that_is_not_there_is_refused(data, tmp_path, given):
    line = refused(small_job(data, "ctrdnn", warm_start=str(tmp_path / given)))
    assert "warm_start" in line


def test_validation_without_data_for_it_is_refused(data):
    said = refused(small_job(data, "ctrdnn", validation={"patience": 2}))
    assert said.startswith("data.validation: is missing, though the job says how to validate")


def test_validation_data_with_texts_for_whole_numbers_are_refused(data, tmp_path):
    job = small_job(data, "ctrdnn")
    first, *_ = find_files(job.data.train, base=job.folder)
    slot = job.data.sparse[0].name
    with_texts(first.path, slot, tmp_path / "v.parquet")
    changed = job.data.model_copy(update={"validation": (str(tmp_path / "v.parquet"),)})
    said = refused(job.model_copy(update={"data": changed}))
    assert f"column '{slot}' of {tmp_path}/v.parquet holds texts (string), that of" in said


@pytest.mark.parametrize("model", SMALL)
def test_cuts_are_the_same_when_no_file_is_there_to_try_the_model_on(data, model):
    job = small_job(data, model, (1,) * SMALL[model].layers)
    assert prepare(job, arrived=800).layout == prepare(job).layout
