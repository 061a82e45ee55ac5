import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from heterps.errors import WireError
from heterps.wire.frames import (
    DTYPES,
    MAX_BUFFER_BYTES,
    MAX_HEADER_BYTES,
    Buffer,
    Header,
    as_buffer,
    attach_payload,
    decode_header,
    encode_header,
    payload,
)

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
values = st.recursive(
    scalars | st.floats(allow_nan=False) | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
arrays = st.sampled_from(sorted(set(DTYPES.values()), key=str)).flatmap(
    lambda dtype: hnp.arrays(dtype, shapes)
)


def header_of(values: list[object]) -> bytes:
    return msgpack.packb(values)


@given(
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=10), scalars | st.binary(max_size=20), max_size=4),
    st.lists(arrays, max_size=4),
    st.integers(0, 2**40),
)
def test_what_was_encoded_is_decoded(verb, fields, sent, counter):
    header = Header(3, counter, verb, fields, tuple(as_buffer(array) for array in sent))
    read = attach_payload(decode_header(encode_header(header)), payload(header.buffers))
    assert (read.generation, read.counter, read.verb, read.fields) == (3, counter, verb, fields)
    for buffer, array in zip(read.buffers, sent, strict=True):
        assert buffer.array.dtype == array.dtype
        np.testing.assert_array_equal(buffer.array, array)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(raw):
    with pytest.raises(WireError):
        decode_header(raw)


@given(st.lists(values, min_size=0, max_size=8))
def test_other_msgpack_is_refused_or_of_the_right_types(items):
    try:
        header = decode_header(header_of(items))
    except WireError:
        return
    assert isinstance(header.verb, str)


@pytest.mark.parametrize(
    ("buffers", "problem"),
    [
        ([["f4", [1 << 40, 0], 0, 0]], "at most"),
        ([["f4", [MAX_BUFFER_BYTES // 4 + 1], 0, 0]], "at most"),
        ([["f4", [-1], 0, 0]], "from 0 on"),
        ([["f4", [1.5], 0, 0]], "from 0 on"),
        ([["f4", [True], 0, 0]], "from 0 on"),
        ([["f4", [1] * 9, 0, 0]], "from 0 on"),
        ([["O", [1], 0, 0]], "known dtype"),
        ([["f4", [1], 0]], "known dtype"),
        ([["f4", [1], -1, 0]], "at least 0"),
        ([["f4", [1], 1, -8]], "at least 0"),
        ([["f4", [1], 0, 0]] * 17, "17 buffers"),
    ],
)
def test_buffers_that_cannot_be_are_refused(buffers, problem):
    with pytest.raises(WireError, match=problem):
        decode_header(header_of([1, 0, 1, "pull", {}, buffers]))


def test_fields_are_bounded_in_depth_and_named_by_text():
    deep: object = 0
    for _ in range(900):
        deep = [deep]
    with pytest.raises(WireError, match="nested deeper"):
        decode_header(header_of([1, 0, 1, "pull", {"a": deep}, []]))
    with pytest.raises(WireError):
        decode_header(header_of([1, 0, 1, "pull", {1: 2}, []]))
    with pytest.raises(WireError, match="no msgpack"):
        decode_header(b"\x91" * 60_000)


def test_extension_types_are_refused():
    with pytest.raises(WireError, match="no msgpack"):
        decode_header(header_of([1, 0, 1, "x", {"a": msgpack.ExtType(4, b"")}, []]))
    with pytest.raises(WireError, match="no msgpack"):
        decode_header(header_of([1, 0, 1, "x", {"a": msgpack.Timestamp(4)}, []]))


def test_another_protocol_is_named():
    with pytest.raises(WireError, match="protocol 2; this side speaks 1"):
        decode_header(header_of([2, 0, 1, "pull", {}, []]))


def test_a_header_beyond_the_limit_is_neither_written_nor_read():
    with pytest.raises(WireError, match="at most"):
        decode_header(bytes(MAX_HEADER_BYTES + 1))
    with pytest.raises(WireError, match="at most"):
        encode_header(Header(0, 1, "x", {"a": bytes(MAX_HEADER_BYTES)}, ()))


@pytest.mark.parametrize("sizes", [(MAX_BUFFER_BYTES + 1,), (1, MAX_BUFFER_BYTES)])
def test_arrays_beyond_the_limit_are_not_sent(sizes):
    buffers = tuple(as_buffer(np.empty(size, np.uint8)) for size in sizes)
    with pytest.raises(WireError, match=f"'push'.* {MAX_BUFFER_BYTES + 1} bytes.* at most"):
        encode_header(Header(0, 0, "push", {}, buffers))


def test_arrays_in_shared_memory_are_limited_one_by_one():
    half = Buffer("u1", (MAX_BUFFER_BYTES,), None, segment=1)
    encode_header(Header(0, 0, "push", {}, (half, half)))
    with pytest.raises(WireError, match="at most"):
        encode_header(Header(0, 0, "push", {}, (Buffer("u2", half.shape, None, segment=1),)))


def test_fields_of_other_types_are_not_sent():
    with pytest.raises(WireError, match="cannot be sent"):
        encode_header(Header(0, 1, "x", {"a": object()}, ()))


def test_frames_that_do_not_fit_the_header_are_refused():
    header = Header(0, 1, "push", {}, (as_buffer(np.zeros(4, np.float32)),))
    read = decode_header(encode_header(header))
    with pytest.raises(WireError, match="2 buffers came"):
        attach_payload(read, [memoryview(bytes(16))] * 2)
    with pytest.raises(WireError, match="15 bytes, the header says 16"):
        attach_payload(read, [memoryview(bytes(15))])


def test_arrays_are_read_in_place():
    frame = memoryview(bytearray(np.arange(3, dtype=np.int64).tobytes()))
    header = Header(0, 1, "pull", {}, (as_buffer(np.zeros(3, np.int64)),))
    (buffer,) = attach_payload(decode_header(encode_header(header)), [frame]).buffers
    frame[0] = 9
    assert buffer.array.tolist() == [9, 1, 2]


def test_only_contiguous_arrays_of_known_types_are_sent():
    with pytest.raises(WireError, match="cannot be sent"):
        as_buffer(np.zeros((4, 4), np.float32)[:, ::2])
    with pytest.raises(WireError, match="cannot be sent"):
        as_buffer(np.zeros(2, complex))
    assert as_buffer(np.zeros(2, np.uint16), "bf16").dtype == "bf16"
