"""A connection to a Ray cluster, or one of this run's own on this machine."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from heterps.errors import InputError, MissingExtraError, ProcessError
from heterps.job.spec import Job
from heterps.runtime.engines.ray.bundles import Node, Resources, bundles_of, needed, of_others
from heterps.runtime.engines.ray.head import Head, reachable

_LOOK_EVERY_S = 2.0
# What Ray is told by its environment, unless the person has said otherwise.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_niceness": "0",
    "RAY_kill_child_processes_on_worker_exit": "0",  # they end themselves, and theirs too
    "RAY_prestart_worker_first_driver": "0",  # a process for every CPU, none of which is used
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
# And a cluster that we start, whose figures nobody asks for.
_OWN_SETTINGS = {
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_task_events_report_interval_ms": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
}
_OBJECT_STORE_BYTES = 100 << 20  # which nothing goes through
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_QUIETLY: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


def load_ray() -> Any:
    """Raises MissingExtraError where Ray is not installed."""
    _say(_SETTINGS)
    try:
        import ray
        import ray.util
    except ImportError:
        raise MissingExtraError("engine: ray", "ray") from None
    return ray


def _say(settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        os.environ.setdefault(name, value)


class RayCluster:
    """The nodes that a job runs on, from generation to generation. Ends the cluster with itself if
    it has started it, and leaves a connection that was there before."""

    def __init__(self, job: Job) -> None:
        self.settings = job.ray
        self.bundles = bundles_of(job)
        self.ray = load_ray()
        self._opened = not self.ray.is_initialized()
        self._folder: Path | None = None
        self._nodes: list[Node] = []
        self._silent: list[str] = []
        # What this run has of each node; None while that changes, and nobody can tell what others
        # have: that is then what they had before.
        self.own: Mapping[str, Resources] | None = None
        self._of_others: dict[str, Resources] = {}
        self._head: Head | None = None
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="nodes", daemon=True)
        try:
            if self._opened:
                self._connect(job)
            self.host: str = self.ray.util.get_node_ip_address()
            self.look()
            self._head = Head(self.ray.get_runtime_context().gcs_address)
        except BaseException:  # a Ctrl-C too
            self._leave()
            raise
        self._watcher.start()

    @property
    def nodes(self) -> Sequence[Node]:
        """Those that were there a moment ago."""
        return self._nodes

    @property
    def open_nodes(self) -> list[Node]:
        """The same without what others have taken of them."""
        return [node.without(self._of_others.get(node.id, {})) for node in self._nodes]

    @property
    def silent(self) -> Sequence[str]:
        """Ids of nodes that Ray has not given up yet, and that nobody can reach."""
        return self._silent

    @property
    def lost(self) -> ProcessError | None:
        """That its head has gone, and Ray gives no answers any more."""
        return self._head.lost if self._head is not None else None

    def has_ended(self) -> bool:
        """Whether its head is lost. Waits while that is not clear, as any call of Ray would."""
        with suppress(ProcessError):
            self._wait_for_head()
        return self.lost is not None

    def look(self) -> None:
        """Sees which nodes there are. Ray takes seconds to minutes to notice that one has gone; a
        connection to its port tells at once."""
        self._wait_for_head()
        try:
            known = [entry for entry in self.ray.nodes() if entry["Alive"]]
            free = self.ray._private.state.available_resources_per_node()
        except Exception as error:  # whatever Ray says when its head has gone
            said = (str(error).splitlines() or [type(error).__name__])[0]
            problem = f"does not say which nodes there are: {said}"
            raise ProcessError("ray", problem, "lost") from error
        with ThreadPoolExecutor(max_workers=32) as pool:
            reached = list(pool.map(_answers, known))
        pairs = list(zip(known, reached, strict=True))
        self._silent = [entry["NodeID"] for entry, answers in pairs if not answers]
        self._nodes = [_node(entry) for entry, answers in pairs if answers]
        own = self.own
        if own is not None:
            seen = [node for node in self._nodes if node.id in free]
            self._of_others = {n.id: of_others(n, free[n.id], own.get(n.id, {})) for n in seen}

    def look_without_own(self) -> None:
        """The same where this run waits for room, and has none."""
        self.own = {}
        try:
            self.look()
        finally:
            self.own = None

    def close(self) -> None:
        self._closing.set()
        self._watcher.join()
        self._leave()

    def _wait_for_head(self) -> None:
        if self._head is not None:
            self._head.wait_for(self._closing)

    def _leave(self) -> None:
        if self._opened and self.lost is None:
            self.ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _connect(self, job: Job) -> None:
        with _own_sigterm():
            self._begin_or_join(job)

    def _begin_or_join(self, job: Job) -> None:
        address = job.ray.address
        if address in (None, "auto"):  # as Ray reads it
            address = os.environ.get("RAY_ADDRESS") or address
        if address is not None:
            _join(self.ray, address)
            return
        # Ray's own unix sockets are in there, so its path has to be short.
        self._folder = Path(tempfile.mkdtemp(prefix="heterps-ray-", dir="/tmp"))
        _begin(self.ray, job, self._folder)

    def _watch(self) -> None:
        while not self._closing.wait(_LOOK_EVERY_S):
            with suppress(ProcessError):  # what was seen last holds until it answers again
                self.look()


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """A handler that there is stays, where Ray would put its own, which exits."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _begin(ray: Any, job: Job, folder: Path) -> None:
    """A cluster of this machine alone, with all that the job may use."""
    _say(_OWN_SETTINGS)
    whole = needed(job)
    counts = dict(whole.resources)
    own = {"num_cpus": counts.pop("CPU", 0.0), "labels": dict(whole.labels)}
    if "GPU" in counts:
        own["num_gpus"] = counts.pop("GPU")
    store = {"object_store_memory": _OBJECT_STORE_BYTES, "include_dashboard": False}
    ray.init(address="local", resources=counts, _temp_dir=str(folder), **own, **store, **_QUIETLY)


def _join(ray: Any, address: str) -> None:
    if "://" in address:
        problem = f"'{address}' is a client's: run this on a node, or submit it as a Ray job"
        raise InputError("ray.address", problem)
    try:
        _refuse_silence(ray, address)
        ray.init(address=address, **_QUIETLY)
    except ray.exceptions.AuthenticationError as error:
        fix = "copy ~/.ray/auth_token from the head, or name its copy in RAY_AUTH_TOKEN_PATH"
        problem = f"cannot join the Ray cluster at '{address}' ({error.message}): {fix}"
        raise InputError("ray.address", problem) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        problem = f"no Ray cluster answers at '{address}' ({said}): start one with `ray start`"
        token = "if one is there, it may want RAY_AUTH_MODE=token and its ~/.ray/auth_token"
        raise InputError("ray.address", f"{problem}; {token}") from None


def _refuse_silence(ray: Any, address: str) -> None:
    """Ray itself would try for a minute and a half, and hear no signal meanwhile."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():  # such as `auto`, whose address is Ray's to find
        return
    hosts = [host.strip("[]")]
    if hosts[0] in _LOOPBACK:  # Ray takes that for the address of the node
        hosts.append(ray.util.get_node_ip_address())
    if not any(reachable(at, int(port)) for at in hosts):
        raise ConnectionError("nobody listens there")


def _answers(entry: Any) -> bool:
    return reachable(entry["NodeManagerAddress"], entry["NodeManagerPort"])


def _node(entry: Any) -> Node:
    labels = entry.get("Labels") or {}
    return Node(entry["NodeID"], entry["NodeManagerAddress"], entry["Resources"], labels)
