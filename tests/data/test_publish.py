from pathlib import Path

import fsspec
import pytest

from heterps.data.publish import fetch_folder, is_there, publish_folder, to_url
from heterps.data.storage import Storage
from heterps.data.writing import aside
from heterps.errors import InputError

pytestmark = pytest.mark.slow


@pytest.fixture(params=["hdfs", "webhdfs", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/p/scores.csv"
    hdfs, server = request.getfixturevalue("hdfs"), request.getfixturevalue("hdfs_server")
    folder = hdfs if request.param == "hdfs" else hdfs.replace(server.url, server.web_url)
    return f"{folder}/p/scores.csv"


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


def test_a_folder_is_published_once_and_fetched_whole(url: str, tmp_path: Path):
    local, storage = tmp_path / "step-1", Storage()
    for name in ("manifest.json", "dense.bin", "tables/t/rows.bin"):
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_text(name)
    there = f"{url.rpartition('/')[0]}/step-1"
    publish_folder(local, there, storage)
    with pytest.raises(InputError, match="is there already"):
        publish_folder(local, there, storage)
    fetch_folder(there, tmp_path / "back", storage)
    names = [path.relative_to(tmp_path / "back") for path in (tmp_path / "back").rglob("*.*")]
    assert sorted(map(str, names)) == ["dense.bin", "manifest.json", "tables/t/rows.bin"]
    assert (tmp_path / "back/tables/t/rows.bin").read_text() == "tables/t/rows.bin"


def test_a_folder_without_its_manifest_is_not_fetched(url: str, tmp_path: Path):
    folder = url.rpartition("/")[0]
    with aside(f"{folder}/dense.bin") as local:
        local.write_text("x")
    with pytest.raises(InputError, match=r"holds no manifest\.json: it is not whole"):
        fetch_folder(folder, tmp_path / "back", Storage())


def test_a_local_path_is_written_as_ever(tmp_path: Path):
    with aside(str(tmp_path / "a" / "x.csv")) as local:
        local.write_text("1")
    assert (tmp_path / "a" / "x.csv").read_text() == "1"


def test_a_bucket_that_is_not_there_is_one_line(s3: str):
    with (
        pytest.raises(InputError, match=r"^s3://none-such/x\.csv: cannot be written \("),
        to_url("s3://none-such/x.csv") as local,
    ):
        local.write_text("1")
