"""That the servers which other tests rely on are real, and end."""

import fsspec
import pytest

from heterps.testing.hdfs import Hdfs
from heterps.testing.ports import free_ports

pytestmark = pytest.mark.slow


def test_hdfs_speaks_its_own_protocol_and_http(hdfs: str, hdfs_server: Hdfs):
    fsspec.open(f"{hdfs}/a.txt", "wb").open().close()
    with fsspec.open(f"{hdfs}/b.txt", "wb") as file:
        file.write(b"hello")
    folder = hdfs.removeprefix(hdfs_server.url)
    assert fsspec.open(f"{hdfs_server.web_url}{folder}/b.txt").open().read() == b"hello"


def test_s3_takes_and_gives_objects_of_several_parts(s3: str):
    content = bytes(range(256)) * 50_000  # more than two parts
    path = f"{s3}/folder/a.bin"
    with fsspec.filesystem("s3").open(path, "wb", block_size=5 << 20) as file:
        file.write(content)
    assert fsspec.open(path).open().read() == content


def test_hdfs_leaves_no_process(tmp_path):
    server = Hdfs(tmp_path / "own")
    with server:
        children = server.children
        assert [child.poll() for child in children] == [None, None]
    assert all(child.poll() is not None for child in children)


def test_ports_are_distinct():
    assert len(set(free_ports(20))) == 20
