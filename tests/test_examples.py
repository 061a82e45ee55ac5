import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_python_of_the_readme_runs():
    command = [sys.executable, "examples/plan.py"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "layers 0 to 2 on 73 cpu",
        "layers 3 to 15 on 4 v100",
        "$0.2165 at 741,040 samples/s, proven optimal: True",
    ]
