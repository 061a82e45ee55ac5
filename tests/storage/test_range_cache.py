import os
from pathlib import Path

import pytest

from heterps.errors import InputError
from heterps.storage.range_cache import RangeCache

URL = "hdfs://h/a.parquet"


def test_a_range_is_kept_by_file_version_and_place(tmp_path: Path):
    cache = RangeCache(tmp_path / "c", 10_000)
    cache.put(URL, "v1", 100, b"x" * 50)
    assert cache.get(URL, "v1", 100, 150) == b"x" * 50
    assert RangeCache(tmp_path / "c", 10_000).get(URL, "v1", 100, 150) == b"x" * 50
    for other in (("hdfs://h/b", "v1", 100, 150), (URL, "v2", 100, 150), (URL, "v1", 100, 149)):
        assert cache.get(*other) is None


def test_the_bound_holds_and_what_was_used_longest_ago_goes(tmp_path: Path):
    cache = RangeCache(tmp_path, 1000)
    for number in range(9):
        cache.put(URL, "v", number * 100, bytes(96))
    for age, path in enumerate(
        sorted(tmp_path.glob("*.range"), key=lambda p: p.stat().st_mtime_ns)
    ):
        os.utime(path, ns=(age, age))
    assert cache.get(URL, "v", 0, 96) is not None  # used just now
    for number in range(9, 12):
        cache.put(URL, "v", number * 100, bytes(96))
    assert cache.size_bytes <= 1000
    assert cache.get(URL, "v", 0, 96) is not None
    assert cache.get(URL, "v", 100, 196) is None
    assert cache.get(URL, "v", 1100, 1196) is not None


def test_a_damaged_range_is_not_served(tmp_path: Path):
    cache = RangeCache(tmp_path, 1000)
    cache.put(URL, "v", 0, b"abc")
    (path,) = tmp_path.glob("*.range")
    path.write_bytes(b"abd" + path.read_bytes()[3:])
    assert cache.get(URL, "v", 0, 3) is None
    assert not path.exists()


def test_what_does_not_fit_is_not_kept(tmp_path: Path):
    cache = RangeCache(tmp_path, 1000)
    cache.put(URL, "v", 0, bytes(2000))
    assert cache.get(URL, "v", 0, 2000) is None
    assert cache.size_bytes == 0


def test_what_a_killed_process_left_is_swept_and_a_smaller_bound_holds(tmp_path: Path):
    cache = RangeCache(tmp_path, 1000)
    for number in range(8):
        cache.put(URL, "v", number * 100, bytes(96))
    (tmp_path / "x.partial-999999999-1").write_bytes(b"1")
    assert RangeCache(tmp_path, 500).size_bytes <= 500
    assert not list(tmp_path.glob("*partial*"))


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^data\.cache\.path: .*/file/c cannot be used"):
        RangeCache(tmp_path / "file" / "c", 1000)
