from pathlib import Path

import fsspec
import pytest

from heterps.data.writing import aside
from heterps.errors import InputError
from heterps.storage.publish import is_there, to_url

pytestmark = pytest.mark.slow


@pytest.fixture
def url(far_folder: str) -> str:
    return f"{far_folder}/p/scores.csv"


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


def test_a_bucket_that_is_not_there_is_one_line(s3: str):
    with (
        pytest.raises(InputError, match=r"^s3://none-such/x\.csv: cannot be written \("),
        to_url("s3://none-such/x.csv") as local,
    ):
        local.write_text("1")
