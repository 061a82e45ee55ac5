import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heterps.data.remote import Extent, FetchedFile, RemoteStream, merged

CONTENT = bytes(range(256)) * 40  # 10,240 bytes


class Counted:
    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.extents: list[tuple[int, int]] = []

    def __call__(self, start: int, stop: int) -> bytes:
        self.extents.append((start, stop))
        return self.content[start:stop]


def test_extents_close_together_become_one():
    given = [Extent(50, 60), Extent(0, 10), Extent(12, 20), Extent(15, 18)]
    assert merged(given, gap_bytes=2) == [(0, 20), (50, 60)]


def test_a_stream_reads_each_block_once_whatever_the_sizes_asked_for():
    fetch = Counted()
    stream = RemoteStream(fetch, len(CONTENT), block_bytes=1000)
    read = b"".join(iter(lambda: stream.read(333), b""))
    assert read == CONTENT
    assert sorted(fetch.extents) == [(at, min(at + 1000, 10240)) for at in range(0, 10240, 1000)]


def test_a_stream_jumps():
    stream = RemoteStream(Counted(), len(CONTENT), block_bytes=1000)
    for at, size in ((9990, 500), (5, 10), (990, 2020), (20000, 5)):
        stream.seek(at)
        assert stream.read(size) == CONTENT[at : at + size]
    stream.seek(-3, io.SEEK_END)
    assert stream.read() == CONTENT[-3:]


def test_an_error_of_the_block_ahead_is_raised_where_it_is_read():
    def fetch(start: int, stop: int) -> bytes:
        if start >= 3000:
            raise OSError("gone")
        return CONTENT[start:stop]

    stream = RemoteStream(fetch, len(CONTENT), block_bytes=1000)
    assert stream.read(3000) == CONTENT[:3000]
    with pytest.raises(OSError, match="gone"):
        stream.read(1)


def test_arrow_reads_from_parts_in_memory_without_fetching():
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": range(1000)}), sink)
    fetch = Counted(sink.getvalue())
    held = [(Extent(0, len(fetch.content)), fetch.content)]
    with pq.ParquetFile(FetchedFile(len(fetch.content), held, fetch)) as file:
        assert file.read()["a"].to_pylist() == list(range(1000))
    assert fetch.extents == []
    with pq.ParquetFile(FetchedFile(len(fetch.content), [], fetch)) as file:
        assert file.read().num_rows == 1000
    assert fetch.extents
