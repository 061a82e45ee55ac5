"""What a job can ask of a run, in real processes."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from heterps.data.source import find_files
from heterps.errors import InputError
from heterps.events import read_events
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.saved_model import load_dense, read_manifest
from heterps.runtime.training import train_run
from heterps.testing.forking import ForkEngine
from heterps.testing.live_runs import LiveRun
from heterps.testing.runs import (
    Outcome,
    epochs_for,
    make_data,
    reference,
    run,
    saved_rows,
    small_job,
)
from heterps.testing.samples import with_texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def few_steps(data, steps, model="ctrdnn", replicas=(1,), **changes):
    job = small_job(data, model, replicas, **changes)
    return small_job(data, model, replicas, **changes, workload__epochs=epochs_for(job, steps))


def events(path, kind):
    return [event for event in read_events(path / "events.jsonl") if event["kind"] == kind]


def falls(losses):
    part = len(losses) // 4
    return sum(losses[-part:]) < 0.95 * sum(losses[:part])


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_stale_run_learns_and_records_no_more_staleness_than_allowed(data, tmp_path, staleness):
    changes = {"workload__staleness": staleness, "workload__epochs": 3, "optimizer__lr": 0.1}
    result, found = run(small_job(data, "two_emb", (2, 1), **changes), tmp_path / "run")
    assert len(found.losses) == result.steps
    assert falls(found.losses)
    seen = {int(batches) for batches in events(tmp_path / "run", "progress")[-1]["staleness"]}
    assert max(seen) <= staleness
    assert seen != {0}


@pytest.mark.parametrize(("validation", "segments"), [(None, 1), (0.1, 3)])
def test_only_a_validation_stops_the_pipeline_at_the_end_of_an_epoch(
    data, tmp_path, monkeypatch, validation, segments
):
    told = []
    tell_all = Coordinator.tell_all

    def listening(coordinator, kind, fields=None):
        told.append((kind, fields))
        tell_all(coordinator, kind, fields)

    monkeypatch.setattr(Coordinator, "tell_all", listening)
    job = small_job(data, "two_emb", (2, 1), workload__epochs=3, data__validation=validation)
    result, found = run(job, tmp_path / "run")
    assert [kind for kind, _ in told].count("train") == segments
    assert len(found.losses) == result.steps


def test_dense_weights_on_the_servers_learn(data, tmp_path):
    changes = {"dense_sync": "server", "workload__epochs": 3, "optimizer__lr": 0.1}
    _, found = run(small_job(data, "two_emb", (2, 1), **changes), tmp_path / "run")
    assert falls(found.losses)
    first = reference(few_steps(data, 1, "two_emb"))
    assert not torch.equal(found.weights["out.weight"], first.weights["out.weight"])


def test_dense_weights_on_the_servers_are_whole_where_rows_are_rounded(data, tmp_path):
    job = few_steps(data, 2, "two_emb", dense_sync="server", wire={"rows": "bf16"}, optimizer__lr=0)
    _, found = run(job, tmp_path / "run")
    first = reference(job).weights
    assert all(torch.equal(weight, first[name]) for name, weight in found.weights.items())


def test_an_encrypted_run_ends_where_one_process_does(data, tmp_path):
    job = few_steps(data, 20, "two_emb", (3, 2), security={"encrypt": True}, servers__count=2)
    _, found = run(job, tmp_path / "run")
    expected = reference(job)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert found.distance(expected) < 1e-5


def test_activations_in_bfloat16_stay_close(data, tmp_path):
    job = few_steps(data, 20, "two_emb", (1, 2), wire={"activations": "bf16"})
    _, found = run(job, tmp_path / "run")
    expected = reference(job)
    assert found.losses != expected.losses
    assert found.losses == pytest.approx(expected.losses, rel=0.02)


def with_weights(data):
    """The click data with a weight of 0, 1 or 2 for each sample; its folder."""
    for path in (make_data(data, "clicks") / "train").glob("*.parquet"):
        table = pq.read_table(path)
        weights = pa.array([float(row % 3) for row in range(table.num_rows)])
        out = data / "weighted" / path.name
        out.parent.mkdir(exist_ok=True)
        pq.write_table(table.append_column("w", weights), out)
    return {"data__train": str(data / "weighted/*.parquet"), "data__weight": "w"}


def test_samples_count_by_their_weight(data, tmp_path):
    plain = few_steps(data, 15, "two_emb")
    job = few_steps(data, 15, "two_emb", (2, 1), **with_weights(data))
    _, found = run(job, tmp_path / "run")
    expected = reference(job)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert found.distance(expected) < 1e-5
    assert found.losses[0] != pytest.approx(reference(plain).losses[0], rel=1e-3)


def validating(data, **changes):
    held = {"data__validation": str(make_data(data, "clicks") / "validation/*.parquet")}
    return few_steps(data, 20, "two_emb", (2, 1), **held, **changes)


def test_validation_comes_between_batches_and_changes_none(data, tmp_path):
    result, found = run(validating(data, validation={"every": 6}), tmp_path / "run")
    validated = events(tmp_path / "run", "validated")
    assert [event["step"] for event in validated] == [6, 12, 18, 20]
    assert found.distance(reference(few_steps(data, 20, "two_emb"))) < 1e-5
    assert result.metrics == validated[-1]["metrics"]
    assert not result.stopped_early


def test_the_best_model_is_kept_with_its_metrics(data, tmp_path):
    job = validating(data, validation={"every": 5, "metric": "logloss"}, optimizer__lr=1.0)
    result, _ = run(job, tmp_path / "run")
    validated = events(tmp_path / "run", "validated")
    best = min(validated, key=lambda event: event["metrics"]["logloss"])
    about = read_manifest(tmp_path / "run/best")
    assert (about["step"], about["metrics"]) == (best["step"], best["metrics"])
    assert result.best == best["metrics"]
    model, kept = (load_dense(tmp_path / "run" / name) for name in ("model", "best"))
    assert torch.equal(model["out.weight"], kept["out.weight"]) == (best["step"] == 20)


def test_a_run_without_improvement_ends_early(data, tmp_path):
    still = {"optimizer__lr": 0.0, "tables": {"default": {"lr": 0.0}}}
    job = validating(data, validation={"every": 4, "patience": 2}, **still)
    result, _ = run(job, tmp_path / "run")
    assert result.stopped_early
    assert result.steps == 12
    assert read_manifest(tmp_path / "run/best")["step"] == 4


def test_a_validation_that_measures_nothing_is_told_and_ends_nothing(data, tmp_path):
    table = pq.read_table(next((make_data(data, "clicks") / "validation").glob("*.parquet")))
    at = table.schema.get_field_index("label")
    one_class = table.set_column(at, "label", pa.array([0] * len(table)))
    pq.write_table(one_class, tmp_path / "one_class.parquet")
    spec = {"every": 4, "patience": 2}
    held = {"data__validation": str(tmp_path / "one_class.parquet")}
    setup = prepare(few_steps(data, 20, "ctrdnn", validation=spec, **held))
    told = []
    with RunFolder.create(tmp_path / "run", setup.job, setup.plan_document()) as folder:
        result = train_run(setup, folder, make_engine=ForkEngine, notice=told.append)
    assert result.steps == 20
    assert result.best is None
    assert not (tmp_path / "run/best").exists()
    (line,) = (line for line in told if "auc" in line)
    assert "has no auc (labels are of one class)" in line


def test_a_run_that_diverges_is_told_so_once(data, tmp_path):
    setup = prepare(validating(data, optimizer__lr=1e30, validation={"every": 10}))
    told = []
    with RunFolder.create(tmp_path / "run", setup.job, setup.plan_document()) as folder:
        train_run(setup, folder, make_engine=ForkEngine, notice=told.append)
    (loss,) = (line for line in told if "the loss of step" in line)
    assert "is not finite: lower optimizer.lr" in loss
    (auc,) = (line for line in told if "auc" in line)
    assert "has no auc (predictions are not finite)" in auc
    (diverged,) = events(tmp_path / "run", "diverged")
    assert 1 <= diverged["step"] < 20


@pytest.fixture(scope="module")
def earlier(data, tmp_path_factory):
    """A run of 10 batches: its folder, and what it came to."""
    path = tmp_path_factory.mktemp("earlier") / "run"
    return path, run(few_steps(data, 10, "two_emb", (2, 1)), path)[1]


@pytest.mark.parametrize("sync", ["allreduce", "server"])
def test_a_run_goes_on_from_an_earlier_one(data, tmp_path, earlier, sync):
    path, start = earlier
    replicas = (1, 2) if sync == "allreduce" else (1, 1)
    job = few_steps(data, 10, "two_emb", replicas, servers__count=2, dense_sync=sync)
    _, found = run(job.model_copy(update={"warm_start": str(path)}), tmp_path / "run")
    expected = reference(job, start=start)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert found.distance(expected) < 1e-5


@pytest.mark.parametrize(("before", "after"), [(None, 0.4), (0.4, None)])
def test_rows_of_an_earlier_run_learn_at_the_rate_of_this_one(data, tmp_path, before, after):
    first, job = (few_steps(data, 5, "two_emb", tables=with_rate(lr)) for lr in (before, after))
    _, start = run(first, tmp_path / "first")
    job = job.model_copy(update={"warm_start": str(tmp_path / "first")})
    _, found = run(job, tmp_path / "run")
    assert found.distance(reference(job, start=start)) < 1e-5


def with_rate(lr):
    return {"default": {"lr": lr}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 6}, "another seed"),
        ({"tables": {"narrow": {"rule": "sgd"}}}, "table 'narrow' .* saved with rule"),
        ({"model__args": {"wide_dim": 4, "narrow_dim": 2, "hidden": [6, 4]}}, "rows of 5"),
        ({"model__args": {"wide_dim": 5, "narrow_dim": 2, "hidden": [6, 5]}}, "shape"),
    ],
)
def test_an_earlier_run_that_does_not_fit_is_refused(data, earlier, changes, said):
    with pytest.raises(InputError, match=f"^warm_start: .*{said}"):
        prepare(small_job(data, "two_emb", warm_start=str(earlier[0]), **changes))


def test_an_earlier_run_on_other_ids_is_refused(data, tmp_path, earlier):
    path = earlier[0]
    whole = read_manifest(path / "model")["slots"]
    assert set(whole.values()) == {"whole numbers"}
    job = few_steps(data, 10, "two_emb", warm_start=str(path))
    slot, (first, *_) = job.data.sparse[0].name, find_files(job.data.train, base=job.folder)
    texts = str(with_texts(first.path, slot, tmp_path / "texts.parquet"))
    job = job.model_copy(update={"data": job.data.model_copy(update={"train": (texts,)})})
    said = f"'{slot}' of {texts} holds texts .* and {path}, the warm start, was trained on whole"
    with pytest.raises(InputError, match=said):
        prepare(job)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_run_goes_on_from_a_file_of_weights(data, tmp_path, suffix):
    job = few_steps(data, 5, "two_emb", (1, 1))
    start = Outcome([], {n: w + 0.1 for n, w in reference(job).weights.items()}, {})
    path = tmp_path / f"weights{suffix}"
    save = torch.save if suffix == ".pt" else safetensors.torch.save_file
    save(dict(start.weights), path)
    _, found = run(job.model_copy(update={"warm_start": str(path)}), tmp_path / "run")
    expected = reference(job, start=start)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert found.distance(expected) < 1e-5


def test_clipping_bounds_what_a_batch_can_change(data, tmp_path):
    steps, lr, clip = 5, 0.02, {"layer": 1e-3, "row": 1e-4}
    changes = {"tables": {"default": {"rule": "sgd", "lr": 0.5}}, "optimizer__lr": lr}
    _, found = run(
        few_steps(data, steps, "two_emb", (2, 1), clip=clip, **changes), tmp_path / "run"
    )
    start = reference(few_steps(data, 1, "two_emb", optimizer__lr=0.0))
    layers = {name.rpartition(".")[0] for name in found.weights}
    moved = [
        torch.cat(
            [(w - start.weights[n]).flatten() for n, w in found.weights.items() if layer in n]
        )
        for layer in layers
    ]
    assert max(change.norm() for change in moved) <= steps * lr * clip["layer"] * 1.01
    free = reference(few_steps(data, steps, "two_emb", **changes))
    assert found.distance(free) > 1e-4


def test_rows_are_clipped_in_each_micro_batch(data, tmp_path):
    """One sample a micro-batch and one step: a row's change is at most that of its gradient."""
    lr, clip = 0.5, 1e-4
    table = {"default": {"rule": "sgd", "lr": lr, "initial": "zeros"}}
    job = few_steps(data, 1, "two_emb", clip={"row": clip}, tables=table)
    _, found = run(job, tmp_path / "run")
    micro_batches = job.workload.micro_batches
    for name, rows in found.rows.items():
        norms = rows.values.norm(dim=1)
        assert norms.max() <= lr * clip * micro_batches * 1.01, name
        assert norms.max() > lr * clip * 0.5, name


def test_a_schedule_that_has_ended_changes_nothing_more(data, tmp_path):
    schedule = {"name": "sgd", "lr": 0.1, "schedule": {"kind": "linear", "total": 5}}
    short, long = (
        run(few_steps(data, steps, "two_emb", (1, 1), optimizer=schedule), tmp_path / str(steps))[1]
        for steps in (5, 9)
    )
    assert all(torch.equal(short.weights[name], long.weights[name]) for name in short.weights)
    for name, rows in short.rows.items():
        later = long.rows[name]
        same = later.values[torch.isin(later.ids, rows.ids)]
        assert torch.equal(rows.values, same)


def test_a_table_may_keep_its_rate_while_the_schedule_falls(data, tmp_path):
    schedule = {"name": "sgd", "lr": 0.1, "schedule": {"kind": "linear", "total": 1}}
    tables = {"default": {"scheduled": False}}
    job = few_steps(data, 4, "two_emb", optimizer=schedule, tables=tables)
    run(job, tmp_path / "run")
    once = reference(few_steps(data, 1, "two_emb", optimizer__lr=0.1))
    rows = saved_rows(tmp_path / "run/model/tables")["default"]
    same = rows.values[torch.isin(rows.ids, once.rows["default"].ids)]
    assert not torch.allclose(same, once.rows["default"].values, atol=1e-4)


def test_workers_do_without_the_compiler_of_torch(data, tmp_path, monkeypatch):
    """Loading it takes a process seconds, after each failure again."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    live = LiveRun(small_job(data, "two_emb", (1, 1), workload__epochs=0.2), tmp_path)
    assert live.ended()[0] == 0
    for stage in range(2):
        loaded = (live.path / "logs" / f"stage-{stage}-replica-0.log").read_text()
        assert "torch.nn" in loaded
        assert "sympy" not in loaded
        assert "torch._dynamo" not in loaded
