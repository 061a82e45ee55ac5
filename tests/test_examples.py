import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def output_of(*args: str, folder: Path = ROOT) -> str:
    command = [sys.executable, *args]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.stdout


def without_effort(text: str) -> str:
    """How long the search took differs from time to time."""
    return re.sub(r"^(method +\w+), .*$", r"\1", text, flags=re.MULTILINE)


def test_the_python_of_the_readme_runs():
    assert output_of("examples/plan.py").splitlines() == [
        "layers 0 to 2 on 73 cpu",
        "layers 3 to 15 on 4 v100",
        "$0.2165 at 741,040 samples/s, proven optimal: True",
    ]


def test_the_readme_shows_what_the_command_prints():
    printed = output_of("-m", "heterps", "plan", "examples/ctrdnn/job.yaml")
    assert without_effort(printed) in without_effort((ROOT / "README.md").read_text())


@pytest.mark.slow
def test_the_training_of_the_readme_runs(tmp_path):
    """On less data than `make train` makes."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    data = str(tmp_path / "build/data/clicks")
    output_of("-m", "heterps", "data", "synth", data, "--rows", "12000", "--ids", "100")
    said = output_of(str(ROOT / "examples/train.py"), folder=tmp_path).splitlines()
    assert said[0].endswith("proven optimal: True")
    assert re.fullmatch(r"AUC 0\.\d{4} at [\d,]+ samples/s", said[1])
    assert list((tmp_path / "runs").glob("*/model/dense.safetensors"))


def test_a_sparse_table_is_pushed_saved_and_loaded_into_shards():
    assert output_of("examples/sparse_table.py").splitlines() == [
        "3 rows after step 1",
        "batch 0 has committed, step 2",
        "3 rows in 3 shards at step 3",
    ]


def test_servers_start_serve_and_save():
    assert output_of("examples/servers.py").splitlines() == [
        "1000 rows on 2 servers after step 1",
        "['key', 'servers', 'snapshot']",
    ]


@pytest.mark.slow
def test_a_model_of_ones_own_is_traced_and_predicts():
    assert output_of("examples/own_model.py").splitlines() == [
        "embedding embedding  24 bytes   16 flops",
        "products  other      72 bytes   24 flops",
        "concat    concat    104 bytes   25 flops",
        "fc        fc        104 bytes 1632 flops",
        "relu      relu      132 bytes   32 flops",
        "out       fc        132 bytes   65 flops",
        "loss      loss        8 bytes  1.5 flops",
        "probabilities: [2]",
    ]


@pytest.mark.slow
def test_data_are_made_up_and_read():
    assert output_of("examples/read_data.py").splitlines() == [
        "no model beats an AUC of 0.79",
        "4 batches, 32 micro-batches an epoch",
        "{'label': [512], 'dense': [512, 2], 'C1': [512], 'C2': [512], 'C3': [512]}",
        "go on with micro-batch 11",
    ]


@pytest.mark.slow
def test_the_tuning_example_ends_at_the_optimum_of_its_problem():
    assert output_of("examples/tune_policy.py") == "$0.2165, then $0.2165\n"


@pytest.mark.slow
def test_a_model_is_trained_and_used_from_python():
    assert output_of("examples/predict.py").splitlines() == [
        "40 steps, better than a guess: True",
        "4000 probabilities, the mean label is met to a tenth: True",
    ]
