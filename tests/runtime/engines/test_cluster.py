"""What Ray says wrong, as a person is told it, without Ray."""

from types import SimpleNamespace

import pytest
import yaml

from heterps.cli.main import main
from heterps.errors import ProcessError
from heterps.runtime.engines.ray import cluster
from heterps.testing.runs import small_job


def nodes():
    raise RuntimeError("no answer\nin many words")


@pytest.fixture
def train(tmp_path, monkeypatch):
    """A run whose Ray cannot say which nodes there are."""
    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    broken = SimpleNamespace(is_initialized=lambda: True, util=util, nodes=nodes)
    monkeypatch.setattr(cluster, "load_ray", lambda: broken)
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(small_job(tmp_path, "two_emb", engine="ray").document()))
    return ["train", str(job), "--out", str(tmp_path / "run"), "--json"]


def test_what_ray_raises_is_one_line(train, capsys):
    assert main(train) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "process 'ray' does not say which nodes there are: " in line
    assert line.endswith("no answer")


def test_with_debug_the_cause_is_shown_too(train):
    with pytest.raises(ProcessError, match="does not say which nodes there are") as raised:
        main(["--debug", *train])
    assert isinstance(raised.value.__cause__, RuntimeError)
