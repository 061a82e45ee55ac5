import threading

import pytest

from heterps.errors import WireError
from heterps.wire.pipes import PipeReader, PipeWriter, make_pipe

SIZE = 8


@pytest.fixture
def ends(tmp_path):
    path = tmp_path / "pipe"
    make_pipe(path)
    reader = PipeReader(path, SIZE)
    writer = PipeWriter(path, SIZE, 10.0)
    reader.await_writer(10.0)
    assert not path.exists(), "it has no name once both have it open"
    yield reader, writer
    reader.close()
    writer.close()


def test_records_arrive_whole_and_in_order(ends):
    reader, writer = ends
    assert reader.take() == []
    records = [bytes([number] * SIZE) for number in range(100)]
    for record in records:
        writer.send(record)
    found = []
    while len(found) < len(records):
        assert reader.wait(10.0)
        found += reader.take()
    assert found == records
    assert reader.fileno() >= 0


def test_the_end_of_the_writer_is_found_after_what_it_said(ends):
    reader, writer = ends
    writer.send(bytes(SIZE))
    writer.close()
    assert reader.wait(None)
    assert reader.take() == [bytes(SIZE)]
    assert reader.wait(None)
    assert reader.take() == []
    assert reader.fileno() == -1
    assert reader.take() == []


def test_the_end_of_the_reader_is_an_error(ends):
    reader, writer = ends
    reader.close()
    with pytest.raises(WireError, match="Broken pipe"):
        writer.send(bytes(SIZE))


def test_a_writer_waits_for_its_reader(tmp_path):
    path, opened = tmp_path / "pipe", []
    make_pipe(path)
    late = threading.Timer(0.1, lambda: opened.append(PipeReader(path, SIZE)))
    late.start()
    writer = PipeWriter(path, SIZE, 10.0)
    late.join()
    opened[0].await_writer(10.0)
    writer.close()
    opened[0].close()


def test_who_does_not_come_is_not_waited_for_for_ever(tmp_path):
    path = tmp_path / "pipe"
    make_pipe(path)
    with pytest.raises(WireError, match="No such device or address"):
        PipeWriter(path, SIZE, 0.01)
    reader = PipeReader(path, SIZE)
    with pytest.raises(WireError, match=r"nobody writes to it in 0\.01 s"):
        reader.await_writer(0.01)
    reader.close()


def test_other_files_and_links_are_no_pipes(tmp_path):
    file, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    file.touch()
    make_pipe(pipe)
    link.symlink_to(pipe)
    with pytest.raises(WireError, match="is not a pipe of this user"):
        PipeReader(file, SIZE)
    with pytest.raises(WireError, match="Too many levels of symbolic links"):
        PipeReader(link, SIZE)
