from dataclasses import dataclass

import pytest

from heterps.errors import InputError
from heterps.job.resources import Cluster
from heterps.planning.roofline import roofline_profile

UNIT = {
    "peak_flops": 1e12,
    "memory_bytes_per_s": 1e9,
    "link_bytes_per_s": 1e6,
    "efficiency": 0.5,
    "alpha": 0.9,
    "beta": 0.8,
}


@dataclass
class Layer:
    name: str
    kind: str
    input_bytes: float
    weight_bytes: int
    flops: float
    row_bytes: float = 0.0


ROWS = Layer("rows", "embedding", 8, 10**9, 16, row_bytes=64)
DENSE = Layer("fc", "fc", 64, 1000, 1e9)
LIGHT = Layer("relu", "relu", 32, 0, 8)


def found(*layers):
    types = [{"name": "unit", "price_per_hour": 1, "limit": 1, "hardware": UNIT}]
    profile = roofline_profile(layers, Cluster.parse({"types": types}), batch_size=100)
    assert profile.source == "roofline"
    return [layer.on["unit"] for layer in profile.layers]


def test_heavy_layers_are_bound_by_arithmetic_at_the_assumed_efficiency():
    assert found(ROWS, DENSE)[1].compute_s == pytest.approx(3 * 100 * 1e9 / 0.5e12)


def test_light_layers_are_bound_by_memory():
    # 100 samples of 32 bytes in and, being the last, none out.
    assert found(DENSE, LIGHT)[1].compute_s == pytest.approx(3 * 3200 / 1e9)


def test_rows_go_over_the_link_both_ways_and_the_first_layer_reads():
    assert found(ROWS, DENSE)[0].comm_s == pytest.approx((2 * 6400 + 800) / 1e6)
    assert found(DENSE, ROWS)[1].comm_s == pytest.approx(2 * 6400 / 1e6)


def test_weights_are_summed_once_a_batch_and_tables_are_not():
    rows, dense = found(ROWS, DENSE)
    assert (rows.sync_s, dense.sync_s) == (0, pytest.approx(2000 / 1e6))
    assert dense.transfer_s == pytest.approx(2 * 6400 / 1e6)
    assert (dense.alpha, dense.beta) == (0.9, 0.8)


def test_a_type_without_hardware_is_refused():
    types = [{"name": "unit", "price_per_hour": 1, "limit": 1}]
    with pytest.raises(InputError, match=r"cluster.types\[0\].hardware: is missing"):
        roofline_profile([DENSE], Cluster.parse({"types": types}), 100)
