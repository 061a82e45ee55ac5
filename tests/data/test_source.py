import errno
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from heterps.data.source import find_files, versions_in
from heterps.errors import InputError
from heterps.storage.access import Storage
from heterps.storage.patience import Patience


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.parquet", "a.parquet", "c.tsv.gz", "_half.parquet", ".x.parquet", "readme"):
        (tmp_path / name).write_bytes(b"12345")
    return tmp_path


def names(*patterns: str, base: str = "") -> list[str]:
    return [Path(file.path).name for file in find_files(patterns, base=base)]


def test_files_come_sorted_and_once(folder: Path):
    pattern = f"{folder}/*.parquet"
    assert names(f"{folder}/b.parquet", pattern, f"file://{folder}/a.parquet")[-2:] == [
        "a.parquet",
        "b.parquet",
    ]
    assert len(names(pattern, pattern)) == len(names(pattern))


def test_a_folder_gives_the_data_in_it(folder: Path):
    found = find_files([str(folder)])
    assert [file.path for file in found] == [
        f"{folder}/{name}" for name in ("a.parquet", "b.parquet", "c.tsv.gz")
    ]
    assert [file.suffix for file in found] == [".parquet", ".parquet", ".tsv.gz"]
    assert found[0].size_bytes == 5
    assert found[0].url == f"{folder}/a.parquet"


def test_relative_paths_start_from_the_job_file(folder: Path):
    assert names("a.parquet", base=str(folder)) == ["a.parquet"]
    assert names(f"{folder}/b.parquet", base="/elsewhere") == ["b.parquet"]


def test_other_file_systems_come_through_the_same_door():
    memory = fsspec.filesystem("memory")
    memory.pipe("/source/a.parquet", b"xyz")
    (file,) = find_files(["memory://source/*.parquet"])
    assert file.url == "memory:///source/a.parquet"
    assert file.open().read() == b"xyz"


class SlowStore(MemoryFileSystem):
    protocol = "slow"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("slow://", "")))

    def cat_file(self, path: str, **options: Any) -> Any:
        time.sleep(0.3)
        return super().cat_file(path, **options)


def test_a_large_range_of_a_slow_store_takes_its_time():
    fsspec.register_implementation("slow", SlowStore, clobber=True)
    fsspec.filesystem("memory").pipe("/source/large.parquet", bytes(16 << 20))
    storage = Storage(patience=Patience(total_s=0.0, attempt_s=0.1))
    (file,) = find_files(["slow://source/large.parquet"], storage=storage)
    assert len(file.read_range(0, 16 << 20)) == 16 << 20
    with pytest.raises(InputError, match="no answer in"):
        file.read_range(0, 1)


class PreciseListings(MemoryFileSystem):
    """A listing has fractions of a second, a question for one file none, as in object stores."""

    protocol = "precise"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("precise://", "")))

    def info(self, path: str, **options: Any) -> Any:
        return super().info(path, **options) | {"ETag": '"5d"', "LastModified": "12:00:01"}

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        more = {"ETag": '"5d"', "LastModified": "12:00:01.25"}
        found = super().ls(path, detail=True, **options)
        return [entry | more if detail else entry["name"] for entry in found]


def test_a_version_is_the_same_from_a_listing_and_from_a_question_for_one_file():
    fsspec.register_implementation("precise", PreciseListings, clobber=True)
    fsspec.filesystem("memory").pipe("/versions/a.tsv", b"1")
    (file,) = find_files(["precise://versions/a.tsv"])
    assert versions_in("precise://versions", ["a.tsv", "b.tsv"]) == {"a.tsv": file.version}


@pytest.mark.parametrize("start", ["", "file://"])
@pytest.mark.parametrize("pattern", ["*/*.parquet", "**/*.parquet"])
def test_a_local_folder_that_cannot_be_listed_is_named_and_not_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, start: str, pattern: str
):
    (folder / "shut").mkdir()
    whole = LocalFileSystem.ls

    def ls(self: LocalFileSystem, path: str, detail: bool = False) -> Any:
        if path.endswith("shut"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return whole(self, path, detail)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    with pytest.raises(InputError, match=r"cannot be read \(/.*/shut: Permission denied\)$"):
        find_files([f"{start}{folder}/{pattern}"])


@pytest.mark.parametrize("pattern", ["*", "*/*", "**/*.parquet", "link/*", "d?/[ab]*"])
def test_local_patterns_match_what_they_do_elsewhere(folder: Path, pattern: str):
    (folder / "d1").mkdir()
    (folder / "d1" / "a.parquet").touch()
    (folder / "d1" / "alias.parquet").symlink_to(folder / "a.parquet")
    (folder / "link").symlink_to(folder / "d1")
    expected = fsspec.filesystem("file").glob(f"{folder}/{pattern}", detail=True)
    files = [path for path, entry in expected.items() if entry["type"] != "directory"]
    assert [file.path for file in find_files([f"{folder}/{pattern}"])] == files


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("{}/*.tsv", "nothing matches '{}/*.tsv': check the path"),
        ("{}/none.parquet", "nothing matches '{}/none.parquet'"),
        ("{}/empty", "nothing matches '{}/empty': the folder holds no .parquet, .tsv"),
        ("gopher://host/x", "'gopher://host/x' cannot be opened (Protocol not known: gopher)"),
    ],
)
def test_what_cannot_be_found_is_one_line(folder: Path, pattern: str, problem: str):
    (folder / "empty").mkdir()
    with pytest.raises(InputError) as caught:
        find_files([pattern.replace("{}", str(folder))], "data.validation")
    assert str(caught.value).startswith(f"data.validation: {problem.replace('{}', str(folder))}")


@pytest.mark.parametrize("base", ["", "jobs", "/jobs", "s3://b/jobs"])
def test_where_a_relative_path_starts_is_told(base: str, folder: Path, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(Storage, "file_system", lambda _, url: (LocalFileSystem(), url))
    start = {"": folder, "jobs": folder / "jobs"}.get(base, base)
    with pytest.raises(InputError, match=f": check the path, which starts from {start}$"):
        find_files(["none.parquet"], base=base)
    with pytest.raises(InputError, match=r": check the path$"):
        find_files(["/none.parquet"], base=base)


def test_a_file_that_is_gone_is_named(folder: Path):
    (file,) = find_files([f"{folder}/a.parquet"])
    (folder / "a.parquet").unlink()
    with pytest.raises(InputError, match=r"a\.parquet: cannot be read \(No such file"):
        file.open()
