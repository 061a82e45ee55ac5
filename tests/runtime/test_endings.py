"""However a run ends, no process and no socket is left, and the person knows why."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from heterps.errors import InputError, ProcessError
from heterps.events import read_events
from heterps.runtime.engines.local import LocalEngine
from heterps.testing.leftovers import (
    await_no_processes,
    processes_of,
    segments_of,
    sockets_below,
)
from heterps.testing.runs import make_data, run, small_job, stages
from heterps.wire.segments import PREFIX, segment_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 240.0
FAILING = """
from torch import nn
from heterps.models import Chain, Layer, LogLoss, SparseEmbedding

class Fails(Layer):
    def forward(self, batch, context):
        if context.micro_batch == 9:
            raise ValueError("on purpose\\nand a second line")
        return {"x": 1.0 * batch["x"]}

def build(slots):
    layers = [SparseEmbedding(slots, 2), Fails(), nn.Linear(6, 1), LogLoss()]
    return Chain([(f"layer{number}", layer) for number, layer in enumerate(layers)])
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def aside(tmp_path, monkeypatch):
    """Where temporary files go meanwhile."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def nothing_is_left(path, aside, pids=()):
    assert await_no_processes(path) == []
    assert sockets_below(path, aside) == []
    assert not (path / "sockets").exists()
    assert list((path / "servers").glob("*.json")) == []
    assert segments_of(pids) == []
    assert list(path.glob("*.partial*")) == []
    return True


def kinds(path):
    return [event["kind"] for event in read_events(path / "events.jsonl")]


def test_after_success_nothing_is_left(data, tmp_path, aside):
    job = small_job(data, "two_emb", (2, 1), workload__epochs=0.3, servers__count=2)
    run(job, tmp_path / "run", LocalEngine)
    assert nothing_is_left(tmp_path / "run", aside)
    assert kinds(tmp_path / "run")[-1] == "ended"


class Impatient(LocalEngine):
    """Somebody presses Ctrl-C while it closes."""

    def close(self, grace_s=0.0):
        super().close(0.0)
        raise KeyboardInterrupt


def test_a_ctrl_c_while_the_processes_are_ended_leaves_nothing_either(data, tmp_path, aside):
    job = small_job(data, "two_emb", (2, 1), workload__epochs=0.3, servers__count=2)
    with pytest.raises(KeyboardInterrupt):
        run(job, tmp_path / "run", Impatient)
    assert nothing_is_left(tmp_path / "run", aside)


def failing_job(data, folder):
    (folder / "my.py").write_text(FAILING)
    plan = stages(4, (1, 2), (1, 2, 1))
    return small_job(data, "ctrdnn", model={"file": str(folder / "my.py")}, plan=plan)


def test_a_workers_exception_comes_with_its_name_and_a_traceback(data, tmp_path, aside):
    with pytest.raises(ProcessError) as caught:
        run(failing_job(data, tmp_path), tmp_path / "run", LocalEngine)
    line, path = str(caught.value), tmp_path / "run"
    file = path / "logs/stage-1-replica-1.traceback.txt"
    assert "process 'stage-1-replica-1' failed: ValueError: on purpose" in line
    assert str(file) in line
    assert "\n" not in line
    assert 'raise ValueError("on purpose' in file.read_text()
    assert kinds(path)[-1] == "failed"
    assert nothing_is_left(path, aside)


def test_a_bad_label_that_only_a_worker_sees_names_file_and_worker(data, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, path in enumerate(sorted((make_data(data, "clicks") / "train").iterdir())):
        table = pq.read_table(path)
        labels = pa.array([float(2 * number)] * table.num_rows)
        at = table.schema.get_field_index("label")
        pq.write_table(table.set_column(at, "label", labels), folder / path.name)
    job = small_job(data, "ctrdnn", (2, 1), data__train=str(folder / "*.parquet"))
    with pytest.raises(InputError) as caught:
        run(job, tmp_path / "run")
    line = str(caught.value)
    assert "part-00001.parquet" in line
    assert "expected the labels 0 and 1, got 2" in line
    assert "stage-0-replica-" in line


class Started:
    """``heterps train`` of an endless job in a process of its own."""

    def __init__(self, data, folder):
        job = small_job(data, "two_emb", (2, 1), workload__epochs=1e6, servers__count=2)
        (folder / "job.yaml").write_text(yaml.safe_dump(job.document()))
        self.path = folder / "run"
        command = [sys.executable, "-m", "heterps", "train", str(folder / "job.yaml")]
        self.process = subprocess.Popen(
            [*command, "--out", str(self.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def until(self, kind):
        deadline = time.monotonic() + PATIENCE_S
        while kind not in kinds(self.path):
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, f"no sign of '{kind}'"
            time.sleep(0.05)
        return [pid for pid in processes_of(self.path) if pid != self.process.pid]

    def ended(self):
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said


@pytest.fixture
def started(data, tmp_path, aside):
    found = Started(data, tmp_path)
    yield found
    found.process.kill()
    found.process.communicate()


@pytest.mark.parametrize("moment", ["started", "progress"])
def test_ctrl_c_ends_all_processes_and_says_so(started, aside, moment):
    pids = started.until(moment)
    started.process.send_signal(signal.SIGINT)
    code, said = started.ended()
    assert code == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert nothing_is_left(started.path, aside, pids)
    assert kinds(started.path)[-1] == "interrupted"


def test_workers_end_when_the_coordinator_is_killed(started):
    pids = started.until("progress")
    workers = [pid for pid in pids if b"heterps.runtime.worker" in command(pid)]
    assert len(workers) == 3
    assert len(pids) >= 5, "and two servers"
    for pid in workers:
        (segment_folder() / f"{PREFIX}{pid}-0").touch()  # its peer has yet to open it
    started.process.kill()
    started.ended()
    assert await_no_processes(started.path) == []
    assert segments_of(pids) == []


def command(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
