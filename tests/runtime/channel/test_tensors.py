import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.errors import WireError
from heterps.runtime.channel.tensors import DTYPES, Layout, bytes_of, read_entries, unpack

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
dtypes = st.sampled_from(sorted(DTYPES))
batches = st.dictionaries(st.text(max_size=8), st.tuples(dtypes, shapes), max_size=40)


def made(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) % 100
    return numbers.to(DTYPES[dtype])


def passed(layout: Layout) -> dict[str, torch.Tensor]:
    memory = torch.zeros(layout.packed_bytes, dtype=torch.uint8)
    layout.pack(memory)
    entries = read_entries(tuple(tuple(fields) for fields in layout.fields()))
    return unpack(entries, [memory, *(bytes_of(tensor) for tensor in layout.alone)])


@settings(deadline=None, max_examples=60)
@given(batches, st.integers(0, 3))
def test_tensors_come_as_they_went(specs, apart):
    tensors = {name: made(*spec) for name, spec in specs.items()}
    found = passed(Layout(tensors, alone=list(tensors)[:apart]))
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_what_is_not_contiguous_or_needs_gradients_comes_too():
    tensor = torch.arange(12.0).reshape(3, 4).t().requires_grad_()
    assert torch.equal(passed(Layout({"x": tensor}))["x"], tensor)
    assert torch.equal(passed(Layout({"x": tensor}, alone=["x"]))["x"], tensor)


def test_floats_are_rounded_to_bfloat16_but_for_exact_ones():
    tensors = {
        "x": torch.tensor([1.0, 1.0 + 2**-12, float("nan"), float("inf")]),
        "d": torch.tensor([1.0 / 3], dtype=torch.float64),
        "weight": torch.tensor([1.0 + 2**-12]),
        "ids": torch.tensor([1 << 60]),
    }
    layout = Layout(tensors, narrow=True, exact=("weight",))
    found = passed(layout)
    assert layout.entries[0].size_bytes == 8
    for name in ("x", "d"):
        rounded = tensors[name].bfloat16().to(tensors[name].dtype)
        assert found[name].dtype == rounded.dtype
        assert torch.equal(found[name].nan_to_num(7.0), rounded.nan_to_num(7.0))
    for name in ("weight", "ids"):
        assert torch.equal(found[name], tensors[name])


def test_a_type_that_is_not_known_is_refused_by_name():
    with pytest.raises(WireError, match=r"'z' is of torch.complex64"):
        Layout({"z": torch.zeros(1, dtype=torch.complex64)})


def test_what_is_too_large_for_a_message_is_refused():
    large = torch.empty(1).expand(1 << 27)
    with pytest.raises(WireError, match="more micro-batches"):
        Layout({"x": large})


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
        unpack(read_entries(value), [torch.zeros(128, dtype=torch.uint8)])
