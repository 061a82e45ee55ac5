"""Every model of the zoo trains under any plan as it does in one process."""

import pytest
import torch

from heterps.models.zoo import ZOO
from heterps.ps import SparseTable, Uniform
from heterps.runtime.threads import InThreads
from heterps.testing.in_process import InProcessPipeline
from heterps.testing.models import make_batch, make_tables, make_tiny
from heterps.testing.reference_loop import reference_loop

pytestmark = pytest.mark.slow
STEPS, SEED = 20, 5
OPTIMIZERS = {
    "sgd": (lambda weights: torch.optim.SGD(weights, lr=0.02), 1e-5),
    "adam": (lambda weights: torch.optim.Adam(weights, lr=0.001), 1e-2),
}


@pytest.fixture(autouse=True)
def one_thread():
    with InThreads(1):
        yield


def make_batches():
    sizes = (7, 4, 0, 5, 6, 3)
    micro_batches = [make_batch(n, seed=seed) for seed, n in enumerate(sizes * 8)]
    some = [micro_batches[at : at + 6] for at in range(0, len(micro_batches), 6)]
    return (some * (STEPS // len(some) + 1))[:STEPS]


def in_thirds(chain):
    return len(chain.layers) // 3, 2 * len(chain.layers) // 3


def distance(found, expected):
    """How far apart, relative to the size; absolute for what is near 0."""
    return float((found - expected).norm() / expected.norm().clamp(min=1e-3))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", sorted(ZOO))
def test_three_stages_of_3_2_and_1_replicas_end_where_one_process_does(name, optimizer):
    make_optimizer, most = OPTIMIZERS[optimizer]
    batches, chain = make_batches(), make_tiny(name)
    local = make_tables(chain, "sgd", 0.02)
    expected = reference_loop(chain, batches, local, make_optimizer, seed=SEED)

    split = make_tiny(name)
    tables = {
        table: SparseTable(dim, "sgd", lr=0.02, initial=Uniform(0.5), threads=1)
        for table, dim in split.tables.items()
    }
    pipeline = InProcessPipeline(
        split, in_thirds(split), (3, 2, 1), batches, tables, make_optimizer, seed=SEED
    )
    assert pipeline.run() == pytest.approx(expected, rel=1e-4)
    found = {key: value for stage in range(3) for key, value in pipeline.weights(stage).items()}
    for key, weight in chain.state_dict().items():
        assert distance(found[key], weight) <= most, key
    for key, table in local.items():
        ids = torch.tensor(sorted(table.rows))
        assert distance(torch.from_numpy(tables[key].pull(ids)), table.pull(ids)) <= most, key
