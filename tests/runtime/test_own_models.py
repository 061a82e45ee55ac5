"""Models of a person's own under plans: what the layers of the zoo never do."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heterps.runtime.prepare import prepare
from heterps.runtime.profiling.exchange import read_batches, time_cuts
from heterps.runtime.trained import load_run
from heterps.testing.runs import epochs_for, make_data, reference, run, small_job, stages

pytestmark = pytest.mark.slow
MODEL = """
import torch
from torch import nn
from heterps.models import Chain, Layer, LogLoss, SparseEmbedding


class Aux(Layer):
    def __init__(self, training):
        super().__init__()
        self.when = training

    def forward(self, batch, context):
        return {"aux": batch["x"].tanh()} if context.training == self.when else {}


class WithAux(LogLoss):
    def forward(self, batch, context):
        x = batch["x"] + batch["aux"] if "aux" in batch else batch["x"]
        return super().forward({"x": x, "label": batch["label"]}, context)


class Smooth(Layer):
    def forward(self, batch, context):
        return {"target": 0.1 + 0.8 * batch["label"]}


class Own(Layer):
    task = "binary"

    def forward(self, batch, context):
        x = batch["x"][:, 0]
        made = {"prediction": x.detach().sigmoid()}
        if context.training:
            losses = nn.functional.softplus(x) - batch["target"] * x
            made["loss"] = losses.sum() / max(len(x), 1)
        return made


def chain(slots, *last):
    layers = [SparseEmbedding(slots, 2), nn.Linear(2 * len(slots), 1), *last]
    return Chain([(f"layer{number}", layer) for number, layer in enumerate(layers)])


def of_one_mode(slots, training):
    return chain(slots, Aux(training), WithAux())


def with_target(slots):
    return chain(slots, Smooth(), Own())
"""


def make_job(folder, **model):
    """Four layers in two stages, the last layer alone in the second one. Samples have weights."""
    (folder / "my.py").write_text(MODEL)
    data = make_data(folder, "clicks")
    for path in data.glob("*/*.parquet"):
        table = pq.read_table(path)
        weights = pa.array([float(row % 3) for row in range(table.num_rows)])
        pq.write_table(table.append_column("w", weights), path)
    changes = {
        "model": {"file": str(folder / "my.py"), **model},
        "data__validation": str(data / "validation/*.parquet"),
        "data__weight": "w",
        "plan": stages(4, (3,), (2, 1)),
    }
    epochs = epochs_for(small_job(folder, "ctrdnn", **changes), 10)
    return small_job(folder, "ctrdnn", **changes, workload__epochs=epochs)


def check(job, folder):
    """Against one process: training, and the metrics of the model that came of it."""
    result, found = run(job, folder)
    expected = reference(job)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert found.distance(expected) < 1e-5
    whole = load_run(folder).evaluate()
    assert result.metrics == pytest.approx({n: whole.value(n) for n in result.metrics}, rel=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_a_name_may_be_made_in_training_alone_or_in_prediction_alone(tmp_path, training):
    job = make_job(tmp_path, function="of_one_mode", args={"training": training})
    check(job, tmp_path / "run")
    setup = prepare(job)
    batches, _ = read_batches(setup)
    assert len(time_cuts(setup, batches[0])) == 4  # what a profile needs


def test_a_last_layer_that_reads_no_label_and_no_weight_is_measured_by_them(tmp_path):
    check(make_job(tmp_path, function="with_target"), tmp_path / "run")
