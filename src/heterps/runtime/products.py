"""The products of matrices of a linear layer.

Torch leaves them to Intel's MKL, which does without AVX-512 on processors of AMD. OneDNN, which
torch has as well, does not: one thread of an EPYC (family 26) makes 240 GFLOP/s with it for 110, in
products of a few hundred rows and columns. Which of them is used depends on the processor and on
the sizes alone, so that the same run has the same bits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear

_LEAST = 1 << 21  # multiplications: below that, oneDNN's 10 µs for each product count for more
_NARROW = 16  # rows or columns, for which others have loops of their own


def outputs(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Of the layer."""
    if _by_onednn(inputs, weight):
        return by_onednn(inputs, weight, bias)
    return linear(inputs, weight, bias)


def input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    columns = weight.t()
    if _by_onednn(gradient, columns):
        return by_onednn(gradient, columns, None)
    return gradient.matmul(weight)


def weight_gradient(gradient: Tensor, inputs: Tensor) -> Tensor:
    """Of matrices, with a row for each sample."""
    rows, columns = gradient.t(), inputs.t()
    if _by_onednn(rows, columns):
        return by_onednn(rows, columns, None)
    return rows.mm(inputs)


def by_onednn(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """``left`` times ``right`` turned over, as a linear layer has it."""
    made: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return made


def _by_onednn(left: Tensor, right: Tensor) -> bool:
    return (
        left.dim() == 2
        and left.dtype == torch.float32
        and left.device.type == "cpu"
        and left.numel() * right.shape[0] >= _LEAST
        and min(*left.shape, right.shape[0]) >= _NARROW
        and is_quicker()
    )


@cache
def is_quicker() -> bool:
    """OneDNN, for large products on this processor."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and wants_onednn(about)


def wants_onednn(cpuinfo: str) -> bool:
    return "AuthenticAMD" in cpuinfo and "avx512f" in cpuinfo
