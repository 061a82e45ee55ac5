import pytest

from heterps.runtime.prepare import prepare
from heterps.runtime.profiling.exchange import read_batches, time_cuts, time_rows
from heterps.testing.runs import small_job

NARROW = {"rows": "fp16", "activations": "bf16"}


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """Rows of the layers and cuts, as they travel by default and narrowed."""

    def measured(**changes):
        setup = prepare(small_job(tmp_path_factory.getbasetemp(), "nce", **changes))
        batches, _ = read_batches(setup)
        return time_rows(setup, batches, (1,)), time_cuts(setup, batches[0])

    return measured(), measured(wire=NARROW)


@pytest.mark.slow
def test_rows_that_travel_narrowed_are_half_as_many_bytes_and_their_ids_as_many(moved):
    (wide, _), (narrow, _) = moved
    for layer, rows in narrow.items():
        before, now = wide[layer].traffic, rows.traffic
        assert now.back_bytes == before.back_bytes / 2 > 0
        assert now.there_bytes - now.back_bytes == before.there_bytes - before.back_bytes


@pytest.mark.slow
def test_activations_that_travel_narrowed_are_half_as_many_bytes(moved):
    (_, wide), (_, narrow) = moved
    pairs = list(zip(wide, narrow, strict=True))[1:]
    assert all(now.traffic.back_bytes == before.traffic.back_bytes / 2 for before, now in pairs)
    assert all(now.traffic.there_bytes < before.traffic.there_bytes for before, now in pairs)
