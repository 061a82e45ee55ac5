"""Small files of every format."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heterps.job.data import DataSpec


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Path]:
    """Writes columns into a Parquet file."""

    def write(name: str, columns: dict[str, Any], row_group_size: int = 4) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
        return path

    return write


@pytest.fixture
def numbered(parquet: Callable[..., Path]) -> Callable[..., DataSpec]:
    """A data set whose samples are numbered in ``I1``, in as many files as there are lists."""

    def write(*files: list[int], **fields: Any) -> DataSpec:
        first = 0
        for index, groups in enumerate(files):
            rows = np.arange(first, first + sum(groups))
            first += sum(groups)
            columns = {"click": rows % 2, "I1": rows.astype(np.float32), "C1": rows * 10}
            path = parquet(f"d/part-{index}.parquet", columns, max(groups))
        spec = {"train": f"{path.parent}/*.parquet", "label": "click", "transform": "none"}
        return DataSpec.parse({**spec, "dense": ["I1"], "sparse": ["C1"], **fields})

    return write
