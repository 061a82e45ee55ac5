"""How the processes of a run are started, placed, watched and stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from heterps.job.spec import Job
from heterps.runtime.engines.base import Engine
from heterps.runtime.engines.local import LocalEngine

MakeEngine = Callable[[Path], Engine]  # for a run folder, and one generation of the run


@contextmanager
def engines_of(job: Job, given: MakeEngine | None = None) -> Iterator[MakeEngine]:
    """Makes the engines that a job names, or those that are ``given``. A cluster that was started
    for it ends with the block."""
    if given is not None or job.engine == "local":
        yield given or LocalEngine
        return
    from heterps.runtime.engines.ray.cluster import RayCluster
    from heterps.runtime.engines.ray.engine import RayEngine

    with closing(RayCluster(job)) as cluster:
        yield partial(RayEngine, cluster=cluster)
