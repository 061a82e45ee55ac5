import errno
from pathlib import Path

import fsspec
import pytest
from s3fs.core import S3File

from heterps.data.writing import aside
from heterps.errors import InputError
from heterps.storage.publish import is_there, put_file, to_url
from heterps.testing.hdfs import Hdfs

pytestmark = pytest.mark.slow


@pytest.fixture
def url(far_folder: str) -> str:
    return f"{far_folder}/p/scores.csv"


@pytest.fixture(params=["hdfs", "webhdfs"])
def hdfs_folder(request: pytest.FixtureRequest, hdfs: str, hdfs_server: Hdfs) -> str:
    return hdfs if request.param == "hdfs" else hdfs.replace(hdfs_server.url, hdfs_server.web_url)


def content(url: str) -> bytes:
    with fsspec.open(url, "rb") as file:
        return file.read()


def test_a_file_appears_whole_and_replaces_another(url: str):
    assert not is_there(url)
    for text in ("one", "another"):
        with aside(url) as local:
            local.write_text(text)
            assert not is_there(url) or content(url) == b"one"
        assert content(url) == text.encode()
    assert is_there(url)
    file_system, path = fsspec.core.url_to_fs(url)
    assert len(file_system.ls(path.rpartition("/")[0])) == 1


def test_after_an_error_nothing_is_there(url: str):
    with pytest.raises(FileNotFoundError), to_url(url) as local:
        local.with_name("another").read_text()
    assert not is_there(url)


def test_a_local_path_is_written_as_ever(tmp_path: Path):
    with aside(str(tmp_path / "a" / "x.csv")) as local:
        local.write_text("1")
    assert (tmp_path / "a" / "x.csv").read_text() == "1"


def test_a_folder_of_that_name_is_left_alone(hdfs_folder: str):
    file_system, path = fsspec.core.url_to_fs(hdfs_folder)
    file_system.makedirs(f"{path}/x.csv", exist_ok=True)
    with (
        pytest.raises(InputError, match=r"x\.csv: cannot be written \(is a folder\)"),
        to_url(f"{hdfs_folder}/x.csv") as local,
    ):
        local.write_text("1")
    (held,) = file_system.ls(path, detail=True)
    assert (held["name"], held["type"]) == (f"{path}/x.csv", "directory")


@pytest.mark.parametrize("begun", [True, False])
def test_an_upload_that_fails_leaves_no_object_and_no_parts(s3, tmp_path, monkeypatch, begun):
    """In its second part, or in the only one."""
    local, call = tmp_path / "x", S3File._call_s3
    local.write_bytes(b"x" * ((72 if begun else 1) << 20))

    def failing(self, method, *args, **kwargs):
        if kwargs.get("PartNumber") == 2 or method == "put_object":
            raise OSError(errno.EIO, "503 Slow Down")
        return call(self, method, *args, **kwargs)

    monkeypatch.setattr(S3File, "_call_s3", failing)
    file_system, bucket = fsspec.core.url_to_fs(s3)
    with pytest.raises(OSError, match="503"):
        put_file(file_system, local, f"{bucket}/x")
    assert file_system.find(bucket) == []
    assert file_system.list_multipart_uploads(bucket) == []


def test_a_bucket_that_is_not_there_is_one_line(s3: str):
    with (
        pytest.raises(InputError, match=r"^s3://none-such/x\.csv: cannot be written \("),
        to_url("s3://none-such/x.csv") as local,
    ):
        local.write_text("1")
