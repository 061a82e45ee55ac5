"""The same hypothesis examples in every ``make test``; ``make soak`` draws new ones. Real servers
of files, started by the first test that asks.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from typing import NoReturn

import fsspec
import pytest
from hypothesis import settings

from heterps.testing.hdfs import Hdfs
from heterps.testing.s3 import S3

settings.register_profile("fixed", derandomize=True)
settings.register_profile("drawn", max_examples=400, print_blob=True)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def lacking() -> Callable[[str], NoReturn]:
    """Ends a test that needs a right: skipped for a plain user, failed for root, who has them all
    where the project is tested."""
    return pytest.skip if os.geteuid() else pytest.fail


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def hdfs(hdfs_server: Hdfs) -> str:
    """The URL of a folder that no other test uses."""
    return f"{hdfs_server.url}/{uuid.uuid4().hex}"


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket that no other test uses; the environment names the server."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    bucket = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(bucket)
    return f"s3://{bucket}"


@pytest.fixture(params=["hdfs", "webhdfs", "s3"])
def far_folder(request: pytest.FixtureRequest) -> str:
    """The URL of an empty folder on each kind of server."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/d"
    hdfs, server = request.getfixturevalue("hdfs"), request.getfixturevalue("hdfs_server")
    return hdfs if request.param == "hdfs" else hdfs.replace(server.url, server.web_url)
