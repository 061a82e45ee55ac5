"""A person's model goes along to hosts that do not have its file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PREFIX = "code-"


def read_code(job: Mapping[str, Any]) -> str | None:
    """The text of the model's file, of a job as a document; None for a model of the zoo."""
    file = job.get("model", {}).get("file")
    return None if file is None else Path(file).read_text(encoding="utf-8")


def with_code(job: Mapping[str, Any], code: str | None, folder: Path) -> Mapping[str, Any]:
    """The job with a file that is here: the one it names, if it says the same, or a copy of
    ``code`` in ``folder``."""
    if code is None:
        return job
    named = Path(job["model"]["file"])
    if named.is_file() and named.read_text(encoding="utf-8") == code:
        return job
    here = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder), named.name)
    here.write_text(code, encoding="utf-8")
    return {**job, "model": {**job["model"], "file": str(here)}}
