from functools import partial

import pytest
import torch

from heterps.runtime import products

# Samples, inputs and outputs of a layer: large, narrow, small, none.
SHAPES = [(256, 128, 96), (4096, 400, 1), (8, 16, 16), (0, 128, 96)]


@pytest.fixture(params=[False, True], ids=["as torch does", "by oneDNN"])
def either(request, monkeypatch):
    monkeypatch.setattr(products, "is_quicker", lambda: request.param)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_the_formulas(shape, dtype):
    samples, width, out = shape
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(1), dtype=dtype)
    inputs, weight, bias, gradient = (
        draw(*size) for size in ((samples, width), (out, width), (out,), (samples, out))
    )
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
    close(products.outputs(inputs, weight, bias), inputs @ weight.t() + bias)
    close(products.outputs(inputs, weight, None), inputs @ weight.t())
    close(products.input_gradient(gradient, weight), gradient @ weight)
    close(products.weight_gradient(gradient, inputs), gradient.t() @ inputs)


def test_only_large_products_of_floats_are_given_to_onednn(monkeypatch):
    monkeypatch.setattr(products, "is_quicker", lambda: True)
    asked = []
    whole = products.by_onednn

    def by_onednn(*arguments):
        asked.append(arguments)
        return whole(*arguments)

    monkeypatch.setattr(products, "by_onednn", by_onednn)
    for samples, width, out in SHAPES:
        products.outputs(torch.zeros(samples, width), torch.zeros(out, width), None)
    products.outputs(torch.zeros(256, 128).double(), torch.zeros(96, 128).double(), None)
    products.outputs(torch.zeros(2, 256, 128), torch.zeros(96, 128), None)
    assert [tuple(left.shape) for left, _, _ in asked] == [(256, 128)]


@pytest.mark.parametrize("offset", [0, 1, 5])
def test_where_a_matrix_lies_in_memory_changes_no_bit(offset):
    rows = torch.randn(300 * 200, generator=torch.Generator().manual_seed(1))
    there = torch.empty(len(rows) + offset)[offset:].copy_(rows).view(300, 200)
    weight = torch.randn(64, 200, generator=torch.Generator().manual_seed(2))
    assert torch.equal(
        products.by_onednn(there, weight, None),
        products.by_onednn(rows.view(300, 200), weight, None),
    )


@pytest.mark.parametrize(
    ("cpuinfo", "wanted"),
    [
        ("vendor_id : AuthenticAMD\nflags : avx2 avx512f", True),
        ("vendor_id : AuthenticAMD\nflags : avx2", False),
        ("vendor_id : GenuineIntel\nflags : avx2 avx512f", False),
    ],
)
def test_it_is_for_processors_of_amd_with_avx_512(cpuinfo, wanted):
    assert products.wants_onednn(cpuinfo) is wanted
