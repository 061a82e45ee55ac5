"""The planning problem: cluster, profile and workload, checked against each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from heterps.errors import InputError, UnknownNameError
from heterps.job.fields import shown
from heterps.job.resources import Cluster
from heterps.job.spec import Job, Workload
from heterps.planning.profile import Profile

if TYPE_CHECKING:
    from heterps.planning.kernel import Kernel

_PARTS = ("cluster", "profile", "workload")
_IGNORED = ("name", "note", "expect", "provision")


@dataclass(frozen=True)
class Problem:
    """Which type runs each layer, with how many units, is to be decided for this."""

    cluster: Cluster
    profile: Profile
    workload: Workload

    @classmethod
    def parse(cls, document: object) -> Problem:
        """From the three parts in one mapping (the form of a case file). Raises InputError."""
        if not isinstance(document, Mapping):
            raise InputError("problem", f"expected a mapping, got {shown(document)}")
        for key in document:
            if key not in _PARTS and key not in _IGNORED:
                raise UnknownNameError(str(key), "key", str(key), _PARTS)
        for part in _PARTS:
            if part not in document:
                raise InputError(part, "is missing")
        cluster = Cluster.parse(document["cluster"], "cluster")
        profile = Profile.parse(document["profile"], "profile")
        workload = Workload.parse(document["workload"], "workload")
        _check_types(cluster, profile)
        _check_samples(workload)
        return cls(cluster, profile, workload)

    @classmethod
    def of(cls, job: Job) -> Problem:
        """From a job that holds a profile: what its parameter servers take is not there for
        stages, and what they cost comes on top. Raises InputError."""
        if job.profile is None:
            raise InputError("profile", "is missing; name a profile file or write it in the job")
        profile = Profile.parse(job.profile, "profile")
        _check_types(job.cluster, profile)
        _check_samples(job.workload)
        cluster, workload = _beside_servers(job)
        return cls(cluster, profile, workload)

    def as_document(self) -> dict[str, Any]:
        return {part: getattr(self, part).as_document() for part in _PARTS}

    @cached_property
    def digest(self) -> str:
        """What is proven for a problem holds for others with the same one."""
        text = json.dumps(self.as_document(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def types(self) -> tuple[str, ...]:
        return self.cluster.names

    @property
    def layers(self) -> int:
        return len(self.profile.layers)

    @cached_property
    def kernel(self) -> Kernel:
        """The problem as arrays, with the native search and provisioner behind them."""
        from heterps.planning.kernel import Kernel

        return Kernel(self)

    def type_indices(self, assignment: Sequence[str], path: str = "assignment") -> list[int]:
        """Checked type numbers of an assignment by names. Raises InputError."""
        if len(assignment) != self.layers:
            raise InputError(path, f"names {len(assignment)} types for {self.layers} layers")
        known = {name: index for index, name in enumerate(self.types)}
        for layer, name in enumerate(assignment):
            if name not in known:
                raise UnknownNameError(f"{path}[{layer}]", "resource type", name, known)
        return [known[name] for name in assignment]

    def with_limits(self, limits: dict[str, int]) -> Problem:
        return replace(self, cluster=self.cluster.with_limits(limits))

    def with_min_throughput(self, min_throughput: float) -> Problem:
        changed = self.workload.model_copy(update={"min_throughput": min_throughput})
        return replace(self, workload=changed)


def _check_types(cluster: Cluster, profile: Profile) -> None:
    for index, layer in enumerate(profile.layers):
        for part in ("on", "send"):
            for name in getattr(layer, part):
                if name not in cluster.names:
                    path = f"profile.layers[{index}].{part}.{name}"
                    raise UnknownNameError(path, "resource type", name, cluster.names)


def _check_samples(workload: Workload) -> None:
    if workload.samples_per_epoch is None:
        raise InputError("workload.samples_per_epoch", "is missing")


def _beside_servers(job: Job) -> tuple[Cluster, Workload]:
    """What is left for stages, and what the servers add to the bill."""
    name, count = job.servers.type, job.servers.count
    if name is None:
        return job.cluster, job.workload
    entry = next(entry for entry in job.cluster.types if entry.name == name)
    if entry.limit < count:
        problem = f"{count} servers of type '{name}', of which there are {entry.limit}"
        raise InputError("servers.count", problem)
    overhead = job.workload.overhead_per_hour + count * entry.price_per_hour
    workload = job.workload.model_copy(update={"overhead_per_hour": overhead})
    return job.cluster.with_limits({name: entry.limit - count}), workload
