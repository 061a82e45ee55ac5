import subprocess
import sys

import pytest

from heterps.data.source import find_files
from heterps.errors import InputError
from heterps.storage.access import Storage
from heterps.storage.places import place
from heterps.storage.publish import is_there, to_url


@pytest.mark.parametrize(
    "url",
    [
        "hdfs://h:8020/clicks/day#1.parquet",
        "hdfs://h:8020/clicks/day#",
        "hdfs://h:8020/clicks/day;1.parquet",
        "hdfs:///clicks/day-?.parquet",
        "hdfs://h:8020//clicks/day",
        "hdfs://h:8020/clicks/a\tday",
        "viewfs://c/clicks/day#1.parquet",
        "webhdfs://h:9870/clicks/day?1.parquet",
        "webhdfs://h:9870/clicks/day#",
    ],
)
def test_a_name_that_its_client_takes_for_another_is_refused(url: str):
    with pytest.raises(ValueError, match=r"its client takes .* for another: use none of #, "):
        Storage().file_system(url)
    with pytest.raises(InputError, match=r"^data\.train: '.*' cannot be opened \(its client"):
        find_files([url])


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("hdfs://h:8020/clicks/[ab] day%201*.parquet", "/clicks/[ab] day%201*.parquet"),
        ("hdfs://h:8020/a:b@c/", "/a:b@c/"),
        ("hdfs://h:8020", "/"),
        ("webhdfs://me@h:9870/clicks/day#1;2", "/clicks/day#1;2"),
        ("s3://b/clicks/day#1?.parquet", "b/clicks/day#1?.parquet"),
    ],
)
def test_other_names_are_what_they_say(url: str, path: str):
    assert Storage().file_system(url)[1] == path


@pytest.mark.parametrize(
    "ask", [is_there, lambda url: to_url(url).__enter__(), lambda url: place(url).exists()]
)
def test_a_password_is_refused_without_showing_it(ask):
    with pytest.raises(InputError, match=r"^webhdfs://me:…@knox/x\.csv: holds a password, ") as it:
        ask("webhdfs://me:hunter2@knox/x.csv")
    assert "hunter2" not in str(it.value)


_FORKS = """
import subprocess, sys
from heterps.storage.access import Storage
system, path = Storage().file_system(sys.argv[1])
system.makedirs(path)
assert system.isdir(path)
del system
subprocess.run(["true"], preexec_fn=lambda: None, check=True)
"""


@pytest.mark.slow
def test_a_process_that_has_read_from_hdfs_can_fork(hdfs):
    """As Ray does when it starts a node."""
    subprocess.run([sys.executable, "-c", _FORKS, f"{hdfs}/new"], check=True, timeout=60)


@pytest.mark.parametrize("url", ["hdfs:///clicks", "hdfs://"])
def test_a_url_without_a_host_says_where_one_is_looked_for(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"names no host, and no core-site\.xml in HADOOP"):
        Storage().file_system(url)


def test_an_option_that_the_client_cannot_take_is_named():
    with pytest.raises(ValueError, match=r"'int' object .*: check the options under storage"):
        Storage({"hdfs": {"dfs.replication": 3}}).file_system("hdfs://h:1/f")


@pytest.mark.parametrize(
    "options", [{"endpont_url": "http://h"}, {"client_kwargs": {"endpont_url": "http://h"}}]
)
def test_an_option_that_nobody_knows_is_an_error_at_once(s3: str, options: dict[str, object]):
    with pytest.raises(InputError, match=r"'endpont_url': check the options under storage"):
        find_files([s3], storage=Storage({"s3": options}))


def test_an_endpoint_without_a_scheme_is_an_error_at_once(s3: str):
    with pytest.raises(InputError, match=r"Invalid endpoint: h:8333: check the options under"):
        find_files([s3], storage=Storage({"s3": {"endpoint_url": "h:8333"}}))
