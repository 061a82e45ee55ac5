"""HeterPS: train a model on mixed hardware for the smallest bill that meets a throughput floor.

What is listed in ``__all__`` is public. It is loaded when it is first used, so that importing the
package stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heterps.lazy import lazy_names

if TYPE_CHECKING:
    from heterps.api import load_problem, plan
    from heterps.errors import (
        HeterPSError,
        InfeasibleError,
        InputError,
        MissingExtraError,
        ModelError,
        NoPlanFoundError,
        NoRoomError,
        NotCommittedError,
        PolicyError,
        ProcessError,
        ServerError,
        SnapshotError,
        StoreError,
        UnknownNameError,
        WireError,
        WorkerLostError,
    )
    from heterps.job.load import load_job
    from heterps.job.resources import Cluster, ResourceType
    from heterps.job.spec import Job, Workload
    from heterps.planning.cost_model import Cost, StageCost, evaluate
    from heterps.planning.explain import Explanation, explain
    from heterps.planning.frontier import Frontier, frontier
    from heterps.planning.plan import Plan
    from heterps.planning.problem import Problem
    from heterps.planning.profile import Profile
    from heterps.planning.provisioning import provision
    from heterps.planning.schedulers import METHODS, make_scheduler
    from heterps.planning.schedulers.base import Progress, Scheduler
    from heterps.runtime.progress import Status
    from heterps.runtime.trained import TrainedRun, load_run
    from heterps.runtime.training import TrainResult, train

    __version__: str

_PLACES = {
    "heterps.api": ("load_problem", "plan"),
    "heterps.errors": (
        "HeterPSError",
        "InfeasibleError",
        "InputError",
        "MissingExtraError",
        "ModelError",
        "NoPlanFoundError",
        "NoRoomError",
        "NotCommittedError",
        "PolicyError",
        "ProcessError",
        "ServerError",
        "SnapshotError",
        "StoreError",
        "UnknownNameError",
        "WireError",
        "WorkerLostError",
    ),
    "heterps.job.load": ("load_job",),
    "heterps.job.resources": ("Cluster", "ResourceType"),
    "heterps.job.spec": ("Job", "Workload"),
    "heterps.planning.cost_model": ("Cost", "StageCost", "evaluate"),
    "heterps.planning.explain": ("Explanation", "explain"),
    "heterps.planning.frontier": ("Frontier", "frontier"),
    "heterps.planning.plan": ("Plan",),
    "heterps.planning.problem": ("Problem",),
    "heterps.planning.profile": ("Profile",),
    "heterps.planning.provisioning": ("provision",),
    "heterps.planning.schedulers": ("METHODS", "make_scheduler"),
    "heterps.planning.schedulers.base": ("Progress", "Scheduler"),
    "heterps.runtime.progress": ("Status",),
    "heterps.runtime.trained": ("TrainedRun", "load_run"),
    "heterps.runtime.training": ("TrainResult", "train"),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "METHODS",
    "Cluster",
    "Cost",
    "Explanation",
    "Frontier",
    "HeterPSError",
    "InfeasibleError",
    "InputError",
    "Job",
    "MissingExtraError",
    "ModelError",
    "NoPlanFoundError",
    "NoRoomError",
    "NotCommittedError",
    "Plan",
    "PolicyError",
    "Problem",
    "ProcessError",
    "Profile",
    "Progress",
    "ResourceType",
    "Scheduler",
    "ServerError",
    "SnapshotError",
    "StageCost",
    "Status",
    "StoreError",
    "TrainResult",
    "TrainedRun",
    "UnknownNameError",
    "WireError",
    "WorkerLostError",
    "Workload",
    "__version__",
    "evaluate",
    "explain",
    "frontier",
    "load_job",
    "load_problem",
    "load_run",
    "make_scheduler",
    "plan",
    "provision",
    "train",
]


_load, __dir__ = lazy_names("heterps", _MODULE_OF)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _load(name)
    from importlib.metadata import version

    globals()[name] = version("heterps")
    return globals()[name]
