"""The job: what to train, on what, under which limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from heterps.errors import InputError, UnknownNameError
from heterps.job.data import DataSpec
from heterps.job.fields import Amount, Count, Positive, Record, Seed, Text, one_of, refuse
from heterps.job.ray import RaySpec
from heterps.job.resources import Cluster
from heterps.job.training import (
    ClipSpec,
    OptimizerSpec,
    RecoverySpec,
    SecuritySpec,
    ServersSpec,
    SnapshotSpec,
    TableEntry,
    ValidationSpec,
    WireSpec,
)

DEFAULT_TABLE = "default"


class Workload(Record):
    """How much is trained, and how fast at the least (samples per second).

    ``samples_per_epoch`` may be left to the data. A batch consists of ``micro_batches`` of equal
    size; ``staleness`` is how many batches may be under way before the last one has committed.
    """

    batch_size: Positive
    samples_per_epoch: Amount | None = None
    epochs: Amount
    min_throughput: Amount = 0.0
    overhead_per_hour: Amount = 0.0
    micro_batches: Positive = 1
    staleness: Count = 0

    def model_post_init(self, _context: Any) -> None:
        if self.batch_size % self.micro_batches:
            problem = f"expected a number that divides batch_size ({self.batch_size})"
            raise refuse(f"{problem}, got {self.micro_batches}", "micro_batches")

    @property
    def samples(self) -> float:
        """Over all epochs."""
        assert self.samples_per_epoch is not None, "count the data first: Job.with_samples"
        return self.samples_per_epoch * self.epochs

    @property
    def micro_batch_size(self) -> int:
        return self.batch_size // self.micro_batches


class Job(Record):
    """A job file with its parts in place. ``profile``, ``plan`` and ``model`` are kept as they were
    read: the packages that own them check them."""

    workload: Workload
    cluster: Cluster
    profile: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    data: DataSpec | None = None
    tables: dict[str, TableEntry] = Field(default_factory=dict)
    optimizer: OptimizerSpec = OptimizerSpec()
    validation: ValidationSpec = ValidationSpec()
    servers: ServersSpec = ServersSpec()
    dense_sync: Annotated[Literal["allreduce", "server"], one_of("allreduce", "server")] = (
        "allreduce"
    )
    engine: Annotated[Literal["local", "ray"], one_of("local", "ray")] = "local"
    ray: RaySpec = RaySpec()
    wire: WireSpec = WireSpec()
    clip: ClipSpec = ClipSpec()
    snapshot: SnapshotSpec = SnapshotSpec()
    recovery: RecoverySpec = RecoverySpec()
    security: SecuritySpec = SecuritySpec()
    dtype: Annotated[Literal["float32", "float64"], one_of("float32", "float64")] = "float32"
    warm_start: Text | None = None
    seed: Seed = 0
    _folder: str = PrivateAttr("")

    def model_post_init(self, _context: Any) -> None:
        if self.workload.samples_per_epoch is None and self.data is None:
            raise refuse("is missing", "workload", "samples_per_epoch")
        if self.servers.type is not None and self.servers.type not in self.cluster.names:
            unknown = UnknownNameError("", "resource type", self.servers.type, self.cluster.names)
            raise refuse(unknown.problem, "servers", "type")

    @property
    def folder(self) -> str:
        """Where relative paths start from; empty for the working folder."""
        return self._folder

    @property
    def follows(self) -> bool:
        """Whether it trains on files as they arrive."""
        return self.data is not None and self.data.follow is not None

    def in_folder(self, folder: str | os.PathLike[str]) -> Job:
        """The same job with relative paths that start from ``folder``."""
        moved = self.model_copy()
        moved._folder = os.fspath(folder)
        return moved

    def with_samples(self, samples_per_epoch: float) -> Job:
        """The same job with the size of its data, unless it says a size itself."""
        if self.workload.samples_per_epoch is not None:
            return self
        changed = self.workload.model_copy(update={"samples_per_epoch": samples_per_epoch})
        return self.model_copy(update={"workload": changed})

    def tables_of(self, dims: Mapping[str, int]) -> dict[str, TableEntry]:
        """The entry of each of the model's tables, given the width of their rows: its own, or that
        of ``default``. Raises InputError for a table that the model does not have, or another
        width.
        """
        for name in self.tables:
            if name != DEFAULT_TABLE and name not in dims:
                raise UnknownNameError(f"tables.{name}", "table of the model", name, dims)
        entries = {}
        for name, dim in dims.items():
            key = name if name in self.tables else DEFAULT_TABLE
            entry = self.tables.get(key, TableEntry())
            if entry.dim not in (None, dim):
                problem = f"the model's table '{name}' has rows of {dim}, not {entry.dim}"
                fix = "change model.args, or leave dim out"
                raise InputError(f"tables.{key}.dim", f"{problem}: {fix}")
            entries[name] = entry
        return entries

    def document(self) -> dict[str, Any]:
        """All settings, defaults included, as plain values that ``parse`` reads back; relative
        paths are made absolute, so that it can be read anywhere.
        """
        document = self.model_dump(mode="json", exclude_none=True)
        for part in ("profile", "plan", "model"):
            if getattr(self, part) is not None:
                document[part] = dict(getattr(self, part))
        if self.data is not None:
            for part in ("train", "validation"):
                if isinstance(document["data"].get(part), list):
                    document["data"][part] = [self.path(at) for at in document["data"][part]]
            if self.data.cache is not None:
                document["data"]["cache"]["path"] = self.path(self.data.cache.path)
        if self.snapshot.to is not None:
            document["snapshot"]["to"] = self.path(self.snapshot.to)
        if self.model is not None and isinstance(self.model.get("file"), str):
            document["model"]["file"] = self.path(self.model["file"])
        if self.warm_start is not None:
            document["warm_start"] = self.path(self.warm_start)
        return document

    def path(self, given: str) -> str:
        """A path of the job file as an absolute one; a URL stays as it is."""
        if "://" in given:
            return given
        return str(Path(self.folder, given).absolute())
