"""When figures that were measured before are still those that would be measured now."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

from heterps.job.resources import ResourceType
from heterps.job.spec import Job
from heterps.planning.profile import Profile
from heterps.runtime.run_folder import installed_versions

_FORMAT = 6  # of what is measured: another one makes all earlier profiles outdated
_PARTS = ("tables", "optimizer", "servers", "dense_sync", "wire", "clip", "security", "dtype")
_NOT_OF_THE_UNIT = ("name", "price_per_hour", "limit", "memory_gib", "hardware", "catalog")


def measured_key(job: Job, entry: ResourceType) -> str:
    """The same for the same model, type, data schema, batches, versions and machine."""
    document = job.document()
    parts: dict[str, Any] = {part: document.get(part) for part in _PARTS}
    work, data = job.workload, document.get("data", {})
    unit = entry.model_dump(mode="json", exclude=set(_NOT_OF_THE_UNIT))
    parts |= {
        "format": _FORMAT,
        "model": document.get("model"),
        "code": _code(job),
        "type": unit,
        "data": {name: value for name, value in data.items() if name != "validation"},
        "batch": [work.batch_size, work.micro_batches],
        "versions": installed_versions(),
        "machine": machine(),
    }
    if job.engine != "local":
        parts |= {"engine": job.engine, "ray": document.get("ray")}
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def outdated(job: Job, known: Profile) -> list[str]:
    """The types of the job whose figures are missing, or would be others if measured now; those
    that a run has corrected have no key."""
    there = {name: about.key for name, about in known.types.items()}
    return [
        entry.name
        for entry in job.cluster.types
        if entry.limit > 0
        and (entry.name not in there or there[entry.name] not in (None, measured_key(job, entry)))
    ]


def machine() -> dict[str, Any]:
    """What figures were measured on."""
    return {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "system": platform.system()}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _code(job: Job) -> str | None:
    """Of a model's own file, whatever it is called."""
    name = (job.model or {}).get("file")
    if not isinstance(name, str):
        return None
    try:
        return hashlib.blake2b(Path(job.path(name)).read_bytes(), digest_size=12).hexdigest()
    except OSError:
        return None
