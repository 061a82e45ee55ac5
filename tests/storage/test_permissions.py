"""What one may not read, list or write on a real HDFS: told at once, and by whose name."""

from collections.abc import Callable, Iterator

import fsspec
import pytest

from heterps.data.source import find_files, names_in
from heterps.errors import InputError
from heterps.storage.places import place
from heterps.storage.publish import is_there, to_url
from heterps.testing.hdfs import Hdfs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]  # less than patience

DENIED = r"\(HADOOP_USER_NAME is 'guest': Permission denied: user=guest, access="


@pytest.fixture(scope="module")
def of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a folder that all may look into, with a file and a folder that they may not."""
    with Hdfs(tmp_path_factory.mktemp("guarded"), permissions=True) as server:
        system, path = fsspec.core.url_to_fs(f"{server.url}/d")
        for name in ("a.tsv", "closed/a.tsv"):
            system.pipe_file(f"{path}/{name}", b"1\n")
        system.client.set_permission(f"{path}/a.tsv", 0o000)
        system.client.set_permission(f"{path}/closed", 0o700)
        yield f"{server.url}/d"


@pytest.fixture(autouse=True)
def guest(of_others: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Who asks. A client keeps to the name that it began with."""
    clients = fsspec.get_filesystem_class("hdfs")
    monkeypatch.setenv("HADOOP_USER_NAME", "guest")
    clients.clear_instance_cache()
    yield
    clients.clear_instance_cache()


def test_a_file_that_one_may_not_read_is_named(of_others: str):
    (file,) = find_files([f"{of_others}/a.tsv"])
    with pytest.raises(InputError, match=rf"^{of_others}/a\.tsv: cannot be read {DENIED}READ, "):
        file.read_range(0, 1)


@pytest.mark.parametrize("below", ["", "/*.tsv", "/a.tsv"])
def test_a_folder_that_one_may_not_list_is_named(of_others: str, below: str):
    where = f"{of_others}/closed"
    expected = rf"^data\.train: '{where}.*' cannot be read {DENIED}"
    with pytest.raises(InputError, match=expected):
        find_files([f"{where}{below}"])
    with pytest.raises(InputError, match=rf"^data\.train: '{where}' cannot be read {DENIED}"):
        names_in(where)


@pytest.mark.parametrize(
    "ask",
    [
        lambda url: place(f"{url}/closed").files(),
        lambda url: place(f"{url}/a.tsv").read_text(),
        lambda url: place(f"{url}/b").write_text("1"),
        lambda url: place(f"{url}/new/b").write_text("1"),
        lambda url: place(f"{url}/a.tsv").remove(),
        lambda url: is_there(f"{url}/closed/a.tsv"),
    ],
)
def test_what_one_may_not_do_is_one_line(of_others: str, ask: Callable[[str], object]):
    with pytest.raises(InputError, match=rf"^{of_others}/\S+: cannot be \w+ {DENIED}"):
        ask(of_others)


def test_a_file_that_one_may_not_write_stays_as_it_was(of_others: str):
    with (
        pytest.raises(InputError, match=rf"^{of_others}/a\.tsv: cannot be written {DENIED}WRITE"),
        to_url(f"{of_others}/a.tsv") as local,
    ):
        local.write_text("2")
    assert set(names_in(of_others)) == {"a.tsv", "closed"}
