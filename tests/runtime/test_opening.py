"""Text has to be read to its end before the first batch, which may take minutes."""

import random

import pytest

from heterps.errors import ProcessError
from heterps.runtime import failure
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.training import train_run
from heterps.testing.runs import small_job
from heterps.testing.samples import criteo_line
from heterps.testing.slow_opening import slow_opening

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PATIENCE_S = 4.0


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Text of 24 chunks. No progress for a few seconds is a failure, and the first ends the run."""
    monkeypatch.setattr(failure, "STUCK_S", PATIENCE_S)
    draw = random.Random(0)
    text = "".join(
        criteo_line(draw.randint(0, 1), str(n), f"{draw.randint(0, 9):08x}") for n in range(400)
    )
    path = tmp_path / "a.tsv"
    path.write_text(text)
    slots = {"data__label": "label", "data__dense": ["I1", "I2"], "data__sparse": ["C1", "C2"]}
    given = {"data__train": str(path), "data__validation": 0.25, "recovery__retries": 0}
    return small_job(tmp_path, "two_emb", (1,), **slots, **given)


def trained(job, path, pause_s):
    setup = prepare(job)
    chunk_bytes = (path.parent / "a.tsv").stat().st_size // 23
    with RunFolder.create(path, setup.job, setup.plan_document()) as folder:
        return train_run(setup, folder, make_engine=slow_opening(chunk_bytes, pause_s))


def test_a_long_opening_that_goes_on_is_no_failure(job, tmp_path):
    result = trained(job, tmp_path / "run", PATIENCE_S / 12)
    assert result.failures == 0
    assert "auc" in result.metrics


def test_an_opening_that_hangs_is_one(job, tmp_path):
    with pytest.raises(ProcessError, match="makes no progress, nor does any other"):
        trained(job, tmp_path / "run", 1000.0)
