import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.errors import WireError
from heterps.runtime.channel.tensors import (
    DTYPES,
    Layouts,
    bytes_of,
    lay_out,
    read_entries,
    unpack,
    wire_bytes,
)

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
dtypes = st.sampled_from(sorted(DTYPES))
batches = st.dictionaries(st.text(max_size=8), st.tuples(dtypes, shapes), max_size=40)


def made(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) % 100
    return numbers.to(DTYPES[dtype])


def passed(tensors: dict[str, torch.Tensor], **options) -> dict[str, torch.Tensor]:
    layout = lay_out(tensors, **options)
    memory = torch.zeros(layout.packed_bytes, dtype=torch.uint8)
    layout.pack(tensors, memory)
    parts = [memory, *(bytes_of(tensors[name]) for name in layout.alone)]
    return unpack(read_entries(layout.encoded), parts)


@settings(deadline=None, max_examples=60)
@given(batches, st.integers(0, 3))
def test_tensors_come_as_they_went(specs, apart):
    tensors = {name: made(*spec) for name, spec in specs.items()}
    found = passed(tensors, alone=list(tensors)[:apart])
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@settings(deadline=None, max_examples=60)
@given(batches, st.booleans())
def test_it_is_known_what_tensors_take_on_the_wire(specs, narrow):
    tensors = {name: made(*spec) for name, spec in specs.items()}
    how = {"narrow": narrow, "exact": list(tensors)[:1]}
    entries = lay_out(tensors, **how).entries
    assert wire_bytes(tensors, **how) == sum(entry.size_bytes for entry in entries)


def test_what_is_not_contiguous_or_needs_gradients_comes_too():
    tensor = torch.arange(12.0).reshape(3, 4).t().requires_grad_()
    assert torch.equal(passed({"x": tensor})["x"], tensor)
    assert torch.equal(passed({"x": tensor}, alone=["x"])["x"], tensor)


def test_floats_are_rounded_to_bfloat16_but_for_exact_ones():
    tensors = {
        "x": torch.tensor([1.0, 1.0 + 2**-12, float("nan"), float("inf")]),
        "d": torch.tensor([1.0 / 3], dtype=torch.float64),
        "weight": torch.tensor([1.0 + 2**-12]),
        "ids": torch.tensor([1 << 60]),
    }
    found = passed(tensors, narrow=True, exact=("weight",))
    assert lay_out(tensors, narrow=True).entries[0].size_bytes == 8
    for name in ("x", "d"):
        rounded = tensors[name].bfloat16().to(tensors[name].dtype)
        assert found[name].dtype == rounded.dtype
        assert torch.equal(found[name].nan_to_num(7.0), rounded.nan_to_num(7.0))
    for name in ("weight", "ids"):
        assert torch.equal(found[name], tensors[name])


def test_a_type_that_is_not_known_is_refused_by_name():
    with pytest.raises(WireError, match=r"'z' is of torch.complex64"):
        lay_out({"z": torch.zeros(1, dtype=torch.complex64)})


def test_what_is_too_large_for_a_message_is_refused():
    large = torch.empty(1).expand(1 << 27)
    with pytest.raises(WireError, match="more micro-batches"):
        lay_out({"x": large})


def test_layouts_are_remembered_by_kind_and_not_for_ever():
    layouts = Layouts()
    first = layouts.of({"x": torch.zeros(3)})
    assert layouts.of({"x": torch.ones(3)}) is first
    for other in ({"x": torch.zeros(4)}, {"y": torch.zeros(3)}, {"x": torch.arange(3)}):
        assert layouts.of(other) == lay_out(other) != first
    assert layouts.of({"x": torch.zeros(3)}, narrow=True).entries[0].wire == "bf16"
    for size in range(200):
        layouts.read(layouts.of({"x": torch.zeros(size)}).encoded)
    assert len(layouts._sent) <= 64
    assert len(layouts._read) <= 64


def test_bytes_that_are_no_entries_are_refused():
    with pytest.raises(WireError):
        read_entries(b"\xc1")


BAD = [
    None,
    ((),),
    (("x", "f4", "f4", (1,), 0),),
    (("x", "f9", "f9", (1,), 0, 0),),
    (("x", "i8", "bf16", (1,), 0, 0),),
    (("x", "f4", "f4", (-1,), 0, 0),),
    (("x", "f4", "f4", (True,), 0, 0),),
    (("x", "f4", "f4", (1 << 40, 1 << 40), 0, 0),),
    (("x", "f4", "f4", (1,) * 9, 0, 0),),
    (("x", "f4", "f4", (1,), -1, 0),),
    (("x" * 300, "f4", "f4", (1,), 0, 0),),
    (("x", "f4", "f4", (1,), 0, 0), ("x", "f4", "f4", (1,), 0, 64)),
    (("x", "f4", "f4", (1,), 0, 4),),
    (("x", "f4", "f4", (33,), 0, 0),),
    (("x", "f4", "f4", (1,), 0, 128),),
    (("x", "f4", "f4", (1,), 1, 0),),
]


@pytest.mark.parametrize("value", BAD)
def test_entries_that_make_no_sense_are_refused(value):
    with pytest.raises(WireError):
        unpack(read_entries(msgpack.packb(value)), [torch.zeros(128, dtype=torch.uint8)])
