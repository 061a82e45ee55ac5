from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from heterps.data.source import find_files
from heterps.storage.access import Storage
from heterps.storage.listing import files_below, matches
from heterps.storage.patience import Patience
from heterps.storage.places import place
from heterps.testing.flaky import FlakyServer
from heterps.testing.hdfs import Hdfs

NAMES = ("day=1/a.parquet", "day=1/b.txt", "day=2/c.parquet", "day=2/deep/d.parquet", "e.parquet")


@pytest.fixture
def system() -> Iterator[MemoryFileSystem]:
    held = MemoryFileSystem()
    for name in NAMES:
        held.pipe_file(f"/listing/{name}", b"12")
    yield held
    held.rm("/listing", recursive=True)


def matched(system: Any, pattern: str) -> list[str]:
    return [entry["name"].removeprefix("/listing/") for entry in matches(system, pattern)]


@pytest.mark.parametrize(
    "pattern",
    ["*", "*.parquet", "day=*/*.parquet", "day=?/[ab].*", "**/*.parquet", "*/deep/d.parquet", "x*"],
)
def test_patterns_match_what_they_do_elsewhere(system, pattern):
    expected = system.glob(f"/listing/{pattern}")
    assert sorted(matched(system, f"/listing/{pattern}")) == [
        name.removeprefix("/listing/") for name in sorted(expected)
    ]


def test_a_pattern_below_a_folder_that_is_not_there_matches_nothing(system):
    assert matches(system, "/nowhere/*.parquet") == []


def test_all_files_of_a_folder_have_relative_names(system):
    assert sorted(name for name, _ in files_below(system, "/listing")) == sorted(NAMES)


@pytest.mark.parametrize("error", [OSError(5, "away"), FileNotFoundError("gone by now")])
def test_a_folder_that_cannot_be_listed_is_an_error(system, monkeypatch, error):
    whole = MemoryFileSystem.ls

    def ls(self, path, detail=True, **more):
        if path.endswith("day=2"):
            raise error
        return whole(self, path, detail=detail, **more)

    monkeypatch.setattr(MemoryFileSystem, "ls", ls)
    for found in (
        lambda: matches(system, "/listing/*/*"),
        lambda: [*files_below(system, "/listing")],
    ):
        with pytest.raises(OSError, match=r"away|changes while it is listed"):
            found()


@pytest.mark.slow
def test_one_refused_listing_of_a_server_is_asked_for_again(hdfs_server: Hdfs, hdfs: str):
    file_system, path = fsspec.core.url_to_fs(hdfs)
    for name in NAMES:
        file_system.pipe_file(f"{path}/{name}", b"12")
    with FlakyServer(hdfs_server.web_url.replace("webhdfs", "http")) as door:
        url = f"{door.endpoint.replace('http', 'webhdfs')}{path}"
        door.about = "day=2?op=LISTSTATUS"
        door.failures = 1
        found = find_files([f"{url}/day=*/*.parquet"], storage=Storage(patience=Patience(30.0)))
        assert [file.path.rpartition("/")[2] for file in found] == ["a.parquet", "c.parquet"]
        door.failures = 1
        assert sorted(place(url, patience_s=30.0).files()) == sorted(NAMES)
        assert door.refused == 2
