from pathlib import Path

from heterps.runtime.code import read_code, with_code


def test_a_host_without_the_models_file_gets_a_copy(tmp_path):
    job = {"model": {"file": "/nowhere/my.py", "function": "build"}}
    found = with_code(job, "x = 1\n", tmp_path)
    assert Path(found["model"]["file"]).read_text() == "x = 1\n"
    assert found["model"]["function"] == "build"


def test_a_host_with_the_same_file_uses_it_and_one_with_another_does_not(tmp_path):
    file = tmp_path / "my.py"
    file.write_text("x = 1\n")
    job = {"model": {"file": str(file)}}
    assert with_code(job, read_code(job), tmp_path) == job
    assert with_code(job, "x = 2\n", tmp_path)["model"]["file"] != str(file)


def test_a_model_of_the_zoo_has_no_code(tmp_path):
    job = {"model": {"zoo": "nce"}}
    assert with_code(job, read_code(job), tmp_path) == job
