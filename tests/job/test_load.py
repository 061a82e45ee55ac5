import json

import pytest
import yaml

from heterps.errors import InputError
from heterps.job.load import load_job, read_document
from heterps.testing.tiny import plain_problem

DOCUMENT = plain_problem().as_document()


def test_a_job_holds_its_parts(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    assert load_job(path).cluster == plain_problem().cluster


def test_parts_of_a_job_are_read_from_paths_relative_to_it(tmp_path):
    (tmp_path / "parts").mkdir()
    for part in ("cluster", "profile", "workload"):
        (tmp_path / "parts" / f"{part}.json").write_text(json.dumps(DOCUMENT[part]))
    path = tmp_path / "job.yaml"
    path.write_text("".join(f"{part}: parts/{part}.json\n" for part in DOCUMENT))
    assert load_job(path).profile == DOCUMENT["profile"]


def test_a_bad_field_of_a_job_is_named_with_the_file(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(json.dumps(DOCUMENT | {"workload": {"batch_size": 0}}))
    with pytest.raises(InputError) as caught:
        load_job(path)
    assert str(caught.value) == f"{path}: workload.batch_size: expected 1 or more, got 0"


def test_a_part_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("cluster: nowhere.json\n")
    with pytest.raises(InputError, match=r"nowhere\.json: cannot be read"):
        load_job(path)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "[1]", "expected a mapping"),
        ("a.json", '{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ("a.json", "[" * 100_000, "is nested too deeply"),
        ("a.json", '{"a": %s}' % ("1" * 5000), "is not JSON"),
        ("a.json", "\ufeff{}", "is not JSON"),
        ("a.yaml", "a: [1", "is not YAML"),
        ("a.yaml", "", "expected a mapping"),
        ("a.yaml", "a: 1\na: 2", "the key 'a' stands twice"),
        ("a.yaml", "{[1, 2]: 3}", "a key has to be a plain text"),
        ("a.yaml", "a: 2024-13-45", "is not YAML"),
        ("a.yaml", "a: !!timestamp x", "is not YAML"),
        ("a.yaml", "a: !!python/object:os.system {}", "is not YAML"),
        ("a.yaml", "[" * 2000, "is nested too deeply"),
        ("a.yaml", "a: \x00", "is not YAML"),
    ],
)
def test_a_file_that_is_no_document_is_refused_in_one_line(tmp_path, name, text, problem):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=problem) as caught:
        read_document(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_line_number_is_given_where_there_is_one(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1,\n "b": }')
    with pytest.raises(InputError, match=r"a\.json:2: "):
        read_document(tmp_path / "a.json")


def test_what_is_not_text_or_not_a_file_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    for path, problem in ((tmp_path / "a.json", "UTF-8"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError, match=problem):
            read_document(path)


def test_floats_with_an_exponent_are_numbers_in_yaml(tmp_path):
    (tmp_path / "a.yaml").write_text("a: 1e-3\nb: 45e6\nc: 1.5e3\nd: e3")
    assert read_document(tmp_path / "a.yaml") == {"a": 1e-3, "b": 45e6, "c": 1500.0, "d": "e3"}


def test_merged_keys_may_be_replaced(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &x {p: 1, q: 2}\nb: {<<: *x, p: 3}")
    assert read_document(tmp_path / "a.yaml")["b"] == {"p": 3, "q": 2}


def test_a_key_is_a_text_whatever_yaml_takes_it_for(tmp_path):
    (tmp_path / "a.yaml").write_text("on: {yes: on}\nflag: true")
    assert read_document(tmp_path / "a.yaml") == {"on": {"yes": True}, "flag": True}


@pytest.mark.parametrize("line", ["", "profile:\n"])
def test_a_profile_that_is_not_named_may_stand_beside_the_job(tmp_path, line):
    (tmp_path / "job.profile.json").write_text(json.dumps(DOCUMENT["profile"]))
    own = {part: DOCUMENT[part] for part in ("cluster", "workload")}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(own) + line)
    assert load_job(tmp_path / "job.yaml").profile == DOCUMENT["profile"]
    assert load_job(tmp_path / "job.yaml", ["profile=null"]).profile is None
