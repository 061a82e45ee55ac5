"""Data sets on real servers: HDFS by its own protocol and over HTTP, and S3."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heterps.data.columns import Columns
from heterps.data.dataset import Dataset, all_grouped
from heterps.data.lane_plan import LanePlan
from heterps.data.lanes import Lanes
from heterps.data.reader import LaneReader
from heterps.data.source import find_files, names_in
from heterps.errors import InputError
from heterps.job.data import DataSpec
from heterps.storage.access import Storage
from heterps.storage.patience import Ahead, Patience
from heterps.testing.flaky import FlakyServer
from heterps.testing.hdfs import Hdfs
from heterps.testing.s3 import S3

pytestmark = pytest.mark.slow

FILES = ([40, 40, 25], [40], [13])  # rows of the row groups


def copied(spec: DataSpec, folder: str, **fields: object) -> DataSpec:
    """The same data set elsewhere."""
    file_system, path = fsspec.core.url_to_fs(folder)
    for file in sorted(Path(spec.train[0]).parent.glob("*")):
        file_system.pipe_file(f"{path}/{file.name}", file.read_bytes())
    return DataSpec.parse({**spec.as_document(), "train": f"{folder}/*.parquet", **fields})


def rows(columns: Columns) -> tuple[list[float], list[int]]:
    return columns.dense[:, 0].tolist(), columns.ids[0].tolist()


def test_samples_are_those_of_local_files(numbered: Callable[..., DataSpec], far_folder: str):
    local = numbered(*FILES)
    data, there = Dataset.open(local), Dataset.open(copied(local, far_folder))
    assert there.sizes == data.sizes
    lanes = Lanes(LanePlan(data.samples, 4, 7), data.sizes, seed=1)
    readers = [LaneReader(each, lanes, range(4)) for each in (data, there)]
    for j in range(2 * lanes.plan.per_epoch):
        one, other = (reader.micro_batch(j) for reader in readers)
        assert all(one[name].equal(other[name]) for name in one)


def test_folders_patterns_and_what_is_not_there(numbered: Callable[..., DataSpec], far_folder: str):
    copied(numbered(*FILES), far_folder)
    names = [f"{far_folder}/part-{number}.parquet" for number in range(3)]
    assert [file.url for file in find_files([far_folder])] == names
    assert [file.url for file in find_files([f"{far_folder}/part-[12].*"])] == names[1:]
    with pytest.raises(InputError, match="nothing matches '"):
        find_files([f"{far_folder}/none.parquet"])


@pytest.mark.parametrize("name", ["part-0#1.parquet", "part-0;1.parquet", "part-0?1.parquet"])
def test_a_file_that_its_client_would_take_for_another_is_not_read(hdfs: str, name: str):
    file_system, path = fsspec.core.url_to_fs(hdfs)
    for each in ("part-0", name):
        with file_system.client.create(f"{path}/{each}") as file:
            file.write(b"1")
    for pattern in (hdfs, f"{hdfs}/*.parquet", f"{hdfs}/{name}"):
        with pytest.raises(InputError, match=r"^data\.train: '.*its client takes '.*part-0.1\.pa"):
            find_files([pattern])


def test_a_cache_gives_what_the_server_no_longer_has_but_no_old_version(
    numbered: Callable[..., DataSpec], far_folder: str, tmp_path: Path
):
    spec = copied(numbered(*FILES), far_folder, cache={"path": str(tmp_path / "cache"), "gib": 1})
    data = Dataset.open(spec)
    before = [rows(data.read(group)) for group in range(5)]
    file_system, path = fsspec.core.url_to_fs(far_folder)
    file_system.rm(f"{path}/part-0.parquet")
    assert [rows(data.read(group)) for group in range(5)] == before
    copied(numbered([20, 20]), far_folder)
    assert Dataset.open(spec).sizes[:2] == (20, 20)


def test_lines_of_text_come_through_too(far_folder: str):
    line = b"\t".join([b"1", *(b"%d" % n for n in range(13)), *(b"c%d" % n for n in range(26))])
    file_system, path = fsspec.core.url_to_fs(far_folder)
    file_system.pipe_file(f"{path}/a.tsv", (line + b"\n") * 1000)
    (file,) = all_grouped(find_files([far_folder]))
    assert list(file.sizes) == [1000]
    assert file.read(0, ["I3", "C2"]).to_pylist()[999] == {"I3": 2.0, "C2": "c1"}


def test_of_a_folder_that_is_followed_what_has_a_marker_counts(
    numbered: Callable[..., DataSpec], far_folder: str
):
    document = copied(numbered(*FILES), far_folder).as_document()
    spec = DataSpec.parse({**document, "train": far_folder, "follow": True})
    with pytest.raises(InputError, match=r"^data\.train: nothing has arrived"):
        Dataset.open(spec)
    file_system, path = fsspec.core.url_to_fs(far_folder)
    file_system.pipe_file(f"{path}/part-1.parquet.done", b"1")
    assert Dataset.open(spec).sizes == (40,)


def test_a_bucket_has_an_empty_folder_wherever_it_has_no_objects(s3: str):
    file_system, path = fsspec.core.url_to_fs(f"{s3}/in")
    assert names_in(f"{s3}/in") == []
    file_system.pipe_file(f"{path}/a.tsv", b"1")
    assert names_in(f"{s3}/in") == ["a.tsv"]
    for gone in (f"{path}/a.tsv", path):  # this server keeps a mark of the folder
        file_system.rm(gone, recursive=True)
        assert names_in(f"{s3}/in") == []
    with pytest.raises(InputError, match=r"^data\.train: 's3://none-such/in' is no folder"):
        names_in("s3://none-such/in")


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hdfs, str]]:
    """A server for faults alone, and a file on it. A killed DataNode is long in coming back for
    writers, so nothing is written later."""
    folder = tmp_path_factory.mktemp("fragile")
    with Hdfs(folder) as server:
        pq.write_table(pa.table({"a": range(100)}), folder / "a.parquet", row_group_size=20)
        file_system, path = fsspec.core.url_to_fs(f"{server.url}/d/a.parquet")
        file_system.pipe_file(path, (folder / "a.parquet").read_bytes())
        yield server, f"{server.url}/d/a.parquet"


def reading(url: str) -> Callable[[], list[int]]:
    """All of the file, row group by row group; it was opened before."""
    (file,) = all_grouped(find_files([url]))
    tables = (file.read(group, ["a"]) for group in range(5))
    return lambda: [value for table in tables for value in table["a"].to_pylist()]


@pytest.mark.parametrize(("go", "come_back"), [("pause", "go_on"), ("kill", "restart")])
def test_a_datanode_that_is_away_for_a_while_does_not_end_reading(
    fragile: tuple[Hdfs, str], go: str, come_back: str
):
    server, url = fragile
    server.restart()
    read = reading(url)
    getattr(server, go)()
    ahead = Ahead(read)
    time.sleep(5.0)
    getattr(server, come_back)()
    assert ahead.result() == list(range(100))


def test_a_datanode_that_stays_away_is_one_line_with_the_file(fragile: tuple[Hdfs, str]):
    server, url = fragile
    (file,) = find_files([url], storage=Storage(patience=Patience(total_s=1.0)))
    server.kill()
    with pytest.raises(InputError, match=rf"^{url}: cannot be reached, tried"):
        file.read_range(0, 100)


def test_a_store_that_says_503_is_asked_again_and_named_in_the_end(
    numbered: Callable[..., DataSpec], s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch
):
    options = {"s3": {"config_kwargs": {"retries": {"max_attempts": 0}}}}  # of the client itself
    spec = copied(numbered(*FILES), f"{s3}/d", storage=options)
    expected = [rows(Dataset.open(spec).read(group)) for group in range(5)]
    with FlakyServer(s3_server.endpoint) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", door.endpoint)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        data = Dataset.open(spec)
        door.failures = 5
        assert [rows(data.read(group)) for group in range(5)] == expected
        assert door.refused == 5
        file = find_files([f"{s3}/d"], storage=Storage(options, patience=Patience(total_s=0.5)))[0]
        door.failures = 10**9
        with pytest.raises(InputError, match=rf"^{s3}/d/part-0\.parquet: cannot be reached, tried"):
            file.read_range(0, 100)
        door.failures = 0
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_a_panic_of_the_client_is_an_error_with_its_text(hdfs: str):
    system, path = fsspec.core.url_to_fs(f"{hdfs}/a.tsv")
    system.pipe_file(path, bytes(10))
    with pytest.raises(OSError, match=r"^PanicException: "):
        Ahead(lambda: system.cat_file(path, start=20, end=30)).result()


@pytest.mark.parametrize("left", [100, 400])
def test_a_file_that_has_become_shorter_is_told_at_once(far_folder: str, left: int):
    file_system, path = fsspec.core.url_to_fs(f"{far_folder}/a.tsv")
    file_system.pipe_file(path, bytes(1000))
    (file,) = find_files([f"{far_folder}/a.tsv"])
    with fsspec.open(f"{far_folder}/a.tsv", "wb") as shorter:
        shorter.write(bytes(left))
    for start, stop in ((300, 600), (600, 900)):
        with pytest.raises(InputError, match=rf"ends before byte {stop}, expected 1000: has it ch"):
            file.read_range(start, stop)


def test_missing_keys_are_named_at_once(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(InputError, match=r"s3://.*: Unable to locate credentials: set them in"):
        find_files([f"{s3}/*.parquet"])
