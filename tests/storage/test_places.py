from pathlib import Path

import pytest

from heterps.errors import InputError
from heterps.storage.places import Url, nameless_file, place, place_fields, place_of

slow = pytest.mark.slow


def test_paths_stay_paths_and_urls_become_urls():
    assert place("a/b") == Path("a/b")
    assert place("file:///mnt/a#1?b;c") == Path("/mnt/a#1?b;c")
    assert place("s3://bucket/a/") == Url("s3://bucket/a")
    with pytest.raises(InputError, match="names no folder"):
        place("hdfs://")


def test_a_url_is_put_together_as_a_path_is():
    url = Url("hdfs://host:8020/a/step-2")
    assert str(url / "tables") == "hdfs://host:8020/a/step-2/tables"
    assert str(url / "../step-1/tables") == "hdfs://host:8020/a/step-1/tables"
    assert (url.name, str(url.parent)) == ("step-2", "hdfs://host:8020/a")
    assert str(Url("s3://bucket") / "a") == "s3://bucket/a"


def test_a_place_goes_through_a_message():
    url = place("s3://bucket/a", {"s3": {"endpoint_url": "http://x"}}, 3.0)
    found = place_of(place_fields(url))
    assert found == url
    assert (found.storage.options, found.storage.patience.total_s) == (url.storage.options, 3.0)
    assert place_of(place_fields(Path("/a"))) == Path("/a")
    with pytest.raises(InputError, match="expected a path or a URL"):
        place_of({"at": 3})


def test_a_nameless_file_has_a_path_and_is_in_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with nameless_file() as path:
        path.write_bytes(b"abc")
        assert (path.read_bytes(), path.stat().st_size) == (b"abc", 3)
        assert list(tmp_path.iterdir()) == []


@slow
def test_files_are_put_listed_fetched_and_removed(far_folder, tmp_path):
    folder, local = place(far_folder), tmp_path / "x"
    assert folder.files() == {}
    local.write_bytes(b"x" * 5000)
    for name in ("one", "t/two"):
        (folder / name).put(local)
    (folder / "manifest.json").write_text("{}")
    assert folder.files() == {"one": 5000, "t/two": 5000, "manifest.json": 2}
    assert (folder / "manifest.json").read_text() == "{}"
    with (folder / "t/two").fetched() as copy:
        assert copy.read_bytes() == local.read_bytes()
    (folder / "t").remove()
    assert sorted(folder.files()) == ["manifest.json", "one"]
    folder.remove()
    assert folder.files() == {}
    folder.remove()
    with pytest.raises(FileNotFoundError), (folder / "one").fetched():
        pass


@slow
@pytest.mark.parametrize("name", ["run#2", "run;2", "run?2"])
def test_nothing_is_done_to_another_folder_than_the_one_that_is_named(hdfs, name):
    (place(hdfs) / "run" / "a").write_text("1")
    wrong = place(hdfs) / name
    for ask in (wrong.exists, wrong.files, wrong.remove, lambda: (wrong / "b").write_text("2")):
        with pytest.raises(InputError, match=r"run.2\S*: cannot be .*its client takes "):
            ask()
    wrong.remove_if_possible()
    assert place(hdfs).files() == {"run/a": 1}


@slow
def test_an_unknown_protocol_and_a_store_that_is_away_are_one_line():
    with pytest.raises(InputError, match=r"^nope://h/a: cannot be opened \("):
        place("nope://h/a").exists()
    away = place("webhdfs://127.0.0.1:1/a", patience_s=0.2)
    for ask in (away.exists, away.files, away.read_text, away.remove):
        with pytest.raises(InputError, match=r"^webhdfs://127.0.0.1:1/a: cannot be reached, tried"):
            ask()
    place("webhdfs://127.0.0.1:1/a", patience_s=60).remove_if_possible()
