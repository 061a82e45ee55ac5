"""Profiles of the zoo on the paper's testbed, from published figures: writes
``examples/paper/<model>.profile.json``. Nothing is measured here.

Usage: paper_testbed.py [FOLDER]
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from heterps.job.load import read_document
from heterps.job.resources import Cluster
from heterps.models.context import seeded
from heterps.models.trace import trace
from heterps.models.zoo import ZOO
from heterps.planning.roofline import roofline_profile

FOLDER = Path(__file__).parents[1] / "examples" / "paper"
BATCH_SIZE = 512
TABLE_BYTES = 64 * 10**9  # of each table; rows are no part of a unit's memory
_IDS, _HISTORY, _DENSE = 1_000_000, 20, 13


def sample_batch() -> dict[str, torch.Tensor]:
    """Uniform ids, hence hardly any row twice: the most that has to be pulled."""
    draw = torch.Generator().manual_seed(0)
    batch = {
        "label": (torch.rand(BATCH_SIZE, generator=draw) < 0.25).float(),
        "dense": torch.rand(BATCH_SIZE, _DENSE, generator=draw),
        "history": torch.randint(_IDS, (BATCH_SIZE * _HISTORY,), generator=draw),
        "history.offsets": torch.arange(BATCH_SIZE + 1) * _HISTORY,
    }
    for slot in ("user", "item", *(f"C{number}" for number in range(1, 27))):
        batch[slot] = torch.randint(_IDS, (BATCH_SIZE,), generator=draw)
    return batch


def profile(model: str, cluster: Cluster) -> dict[str, Any]:
    with seeded(0):
        chain = ZOO[model]()
    traced = trace(chain, sample_batch(), dict.fromkeys(chain.tables, TABLE_BYTES))
    return roofline_profile(traced.layers, cluster, BATCH_SIZE, model).as_document()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    cluster = Cluster.parse(read_document(FOLDER / "cluster.yaml"), "cluster")
    for model in ZOO:
        text = json.dumps(profile(model, cluster), indent=1)
        (folder / f"{model}.profile.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
