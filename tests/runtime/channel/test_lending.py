import gc

import pytest
import torch

from heterps.errors import WireError
from heterps.runtime.channel.lending import Borrower, Lender, Piece
from heterps.wire.segments import Segment

KIB = 1 << 10


@pytest.fixture
def lender():
    lender = Lender(enabled=True)
    yield lender
    lender.close()


def introduce(lender: Lender, borrower: Borrower) -> None:
    for segment in lender.new_segments():
        lender.opened(
            segment.number, borrower.open(segment.number, segment.path, segment.size_bytes)
        )


def test_a_segment_is_used_once_the_peer_has_opened_it(lender):
    borrower = Borrower()
    assert lender.take(64 * KIB) is None
    assert lender.take(64 * KIB) is None, "not before"
    introduce(lender, borrower)
    piece = lender.take(64 * KIB)
    piece.array[:] = 7
    assert (borrower.memory(piece) == 7).all()


def test_a_piece_goes_back_when_nobody_looks_at_it_any_more(lender):
    borrower = Borrower()
    lender.take(64 * KIB)
    introduce(lender, borrower)
    piece = lender.take(64 * KIB)
    memory = borrower.memory(piece)
    part = memory[64:128].view(torch.float32).view(4, 4)[1:]
    del memory
    gc.collect()
    assert borrower.done_with() == []
    del part
    gc.collect()
    assert borrower.done_with() == [Piece(1, piece.offset)]
    lender.give_back(Piece(1, piece.offset))
    assert lender.take(64 * KIB).offset == piece.offset


def test_giving_back_what_was_not_lent_is_an_error(lender):
    with pytest.raises(WireError):
        lender.give_back(Piece(1, 0))


def test_a_larger_segment_follows_and_the_smaller_goes(lender):
    borrower = Borrower()
    lender.take(64 * KIB)
    introduce(lender, borrower)
    first = lender.take(512 * KIB)
    assert lender.take(4096 * KIB) is None
    introduce(lender, borrower)
    assert lender.take(4096 * KIB).segment == 2
    assert lender.superseded() == []
    lender.give_back(Piece(first.segment, first.offset))
    assert lender.superseded() == [1]
    assert lender.superseded() == []


def test_a_peer_that_cannot_open_segments_gets_none(lender):
    lender.take(64 * KIB)
    (segment,) = lender.new_segments()
    lender.opened(segment.number, False)
    assert lender.take(64 * KIB) is None
    assert lender.new_segments() == []
    assert not segment.path.exists()


def test_where_there_is_no_memory_it_is_tried_again_later(lender, monkeypatch):
    attempts = []

    def refuse(number, size_bytes):
        attempts.append(size_bytes)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "create", refuse)
        assert all(lender.take(64 * KIB) is None for _ in range(100))
        assert len(attempts) == 2
    assert all(lender.take(64 * KIB) is None for _ in range(100))
    assert len(lender.new_segments()) == 1


def test_a_segment_that_is_none_is_not_opened(tmp_path):
    borrower = Borrower()
    (tmp_path / "heterps-x").write_bytes(bytes(4096))
    assert not borrower.open(1, tmp_path / "heterps-x", 4096)
    assert not borrower.open(1, tmp_path / "none", 4096)
