"""The ids that benchmarks ask for and the samples they train on, reproducible from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from heterps.data.click_model import BLOCK_ROWS, ClickModel
from heterps.data.writing import parquet_writer

BATCH, SLOTS, SLOT_IDS = 4096, 26, 1_000_000
_SCATTER = 3**18  # coprime to SLOT_IDS


def uniform(rows: int, count: int, batches: int, seed: int = 1) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(0, rows, count)) for _ in range(batches)]


def criteo_like(batches: int) -> list[torch.Tensor]:
    """[BATCH x SLOTS] ids: slot s draws Zipf(1.05 … 1.2) from a million ids of its own."""
    columns = [
        torch.stack(list(zipf_batches(exponent, SLOT_IDS, BATCH, batches, slot))) + slot * SLOT_IDS
        for slot, exponent in enumerate(np.linspace(1.05, 1.2, SLOTS))
    ]
    return [ids.reshape(-1).contiguous() for ids in torch.stack(columns, dim=2)]


def zipf_batches(
    exponent: float, rows: int, count: int, batches: int, seed: int = 0
) -> list[torch.Tensor]:
    """Bounded Zipf; which id is how frequent is random, as it is for hashed features."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
    names = rng.permutation(rows)
    return [
        torch.from_numpy(names[np.searchsorted(shares, rng.random(count) * shares[-1])])
        for _ in range(batches)
    ]


def training_data(folder: Path, samples: int) -> tuple[Path, Path]:
    """The samples of the training benchmark as (.npz, .parquet), written once; ``samples`` is
    rounded up to whole blocks.

    Both hold the same rows in the same order: `ids` [n x SLOTS], `dense` [n x 13] after log1p and
    `labels` [n] in the first, columns as `heterps data synth` writes them in the second.
    """
    blocks = -(-samples // BLOCK_ROWS)
    arrays, table = (folder / f"train-{blocks * BLOCK_ROWS}.{end}" for end in ("npz", "parquet"))
    if not (arrays.exists() and table.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        model = ClickModel(slots=SLOTS, ids=SLOT_IDS)
        rows = pa.concat_tables(_scattered(model.block(number).table) for number in range(blocks))
        with parquet_writer(table, rows.schema) as writer:
            writer.write_table(rows, row_group_size=BLOCK_ROWS)
        _write_arrays(rows, arrays)
    return arrays, table


def _scattered(table: pa.Table) -> pa.Table:
    """The same with other names for the ids: made-up ids are ranks, which would put the frequent
    rows of a dense table side by side, and those of hashed features are not.
    """
    for index, name in enumerate(table.column_names):
        if name.startswith("C"):
            ids = table[name].to_numpy() * _SCATTER % SLOT_IDS
            table = table.set_column(index, name, pa.array(ids))
    return table


def _write_arrays(table: pa.Table, path: Path) -> None:
    columns = {
        start: [table[name].to_numpy() for name in table.column_names if name.startswith(start)]
        for start in ("C", "I")
    }
    unfinished = path.with_suffix(".part.npz")
    np.savez(
        unfinished,
        ids=np.stack(columns["C"], axis=1),
        dense=np.log1p(np.stack(columns["I"], axis=1)),
        labels=table["label"].to_numpy().astype(np.float32),
    )
    unfinished.rename(path)
