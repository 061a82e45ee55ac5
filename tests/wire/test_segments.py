import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterps.errors import WireError
from heterps.wire.frames import Buffer
from heterps.wire.segments import Arena, Segment, segment_folder


@pytest.fixture
def segment():
    segment = Segment.create(1, 1 << 16)
    yield segment
    segment.unlink()


def test_both_sides_see_the_same_memory_and_no_file_is_left(segment):
    assert stat.S_IMODE(segment.path.stat().st_mode) == 0o600
    peer = Segment.open(1, segment.path, segment.size_bytes)
    assert not segment.path.exists()
    place = Buffer("f4", (2, 3), None, 1, 128)
    segment.array(place)[:] = 5
    assert peer.array(place).tolist() == [[5.0] * 3] * 2


def test_a_place_beyond_the_end_is_refused(segment):
    with pytest.raises(WireError, match="of a segment of 65536"):
        segment.array(Buffer("f4", (1 << 14,), None, 1, 64))
    with pytest.raises(WireError, match="bytes 4 to"):
        segment.array(Buffer("f4", (1,), None, 1, 4))


def test_other_files_are_not_opened(segment, tmp_path):
    secret = tmp_path / "heterps-secret"
    secret.write_bytes(bytes(64))
    with pytest.raises(WireError, match="no place for a segment"):
        Segment.open(1, secret, 64)
    with pytest.raises(WireError, match="no place for a segment"):
        Segment.open(1, Path("/dev/shm/../etc/passwd"), 64)
    with pytest.raises(WireError, match="No such file"):
        Segment.open(1, segment_folder() / "heterps-none", 64)
    assert secret.exists()


def test_a_link_or_a_wrong_size_is_refused(segment):
    link = segment_folder() / f"heterps-link-{os.getpid()}"
    link.symlink_to(segment.path)
    try:
        with pytest.raises(WireError):
            Segment.open(1, link, segment.size_bytes)
    finally:
        link.unlink()
    with pytest.raises(WireError, match="has 65536 bytes, not 131072"):
        Segment.open(1, segment.path, 1 << 17)


def test_more_memory_than_there_is_fails_at_once_and_leaves_nothing():
    before = set(segment_folder().iterdir())
    with pytest.raises(OSError, match=r"."):
        Segment.create(1, 1 << 50)
    assert set(segment_folder().iterdir()) - before == set()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20_000)), max_size=40))
def test_pieces_never_overlap(operations):
    segment = Segment.create(1, 1 << 16)
    segment.unlink()
    arena, held = Arena(segment), []
    for take, number in operations:
        if take:
            piece = arena.take("u1", (number,))
            if piece is not None:
                piece.array[:] = len(held) % 251
                held.append((piece, len(held) % 251))
        elif held:
            piece, _ = held.pop(number % len(held))
            arena.give_back(piece)
        for piece, value in held:
            assert (piece.array == value).all()
    for piece, _ in held:
        arena.give_back(piece)
    assert arena.empty


def test_the_lowest_place_is_used_again(segment):
    arena = Arena(segment)
    first, second = arena.take("u1", (100,)), arena.take("u1", (100,))
    assert (first.offset, second.offset) == (0, 128)
    arena.give_back(first)
    assert arena.take("f4", (4,)).offset == 0
    assert arena.take("u1", (1 << 16,)) is None
    np.testing.assert_array_equal(second.array.shape, (100,))
