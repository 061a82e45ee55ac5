"""Starts processes of a run on the nodes of a Ray cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heterps.errors import NoRoomError
from heterps.runtime.engines.base import GRACE_S, Engine, ProcessSpec, Site
from heterps.runtime.engines.ray.bundles import lacking, limits, shown
from heterps.runtime.engines.ray.cluster import RayCluster
from heterps.runtime.engines.ray.handle import RayHandle
from heterps.runtime.engines.ray.keeper import PREFIX, Keeper

_NODE_ID = "ray.io/node-id"
_LOOK_S = 0.5
_LEAVE_S = 3.0


class RayEngine(Engine):
    """One placement group holds the processes that were placed; others are on this node. What they
    keep on their nodes goes with them."""

    def __init__(self, folder: Path, cluster: RayCluster) -> None:
        super().__init__(folder)
        self.host = cluster.host
        self._cluster = cluster
        self._ray = cluster.ray
        own = f"{PREFIX}{secrets.token_hex(6)}"
        self._own_folder = Path(cluster.settings.folder, own)
        self._group: Any = None
        self._units: dict[str, str] = {}
        self._sites: dict[str, Site] = {}
        self._at: dict[str, str] = {}  # nodes by process
        self._handles: dict[str, RayHandle] = {}
        self._closed = False
        cluster.look()  # who has been there at the end of the last generation may be gone

    def place(self, units: Mapping[str, str]) -> dict[str, Site]:
        assert self._group is None, "placed already"
        self._units = dict(units)
        bundles = [self._cluster.bundles[unit] for unit in units.values()]
        labels = [{**bundle.labels, **self._reachable()} for bundle in bundles]
        self._group = self._ray.util.placement_group(
            [dict(bundle.resources) for bundle in bundles],
            strategy="PACK",
            bundle_label_selector=labels if any(labels) else None,
        )
        self._await_room()
        nodes = self._ray.util.placement_group_table(self._group)["bundles_to_node_id"]
        hosts = {node["NodeID"]: node["NodeManagerAddress"] for node in self._ray.nodes()}
        self._at = {name: nodes[n] for n, name in enumerate(units)}
        self._sites = {name: Site(hosts[at], self._own_folder) for name, at in self._at.items()}
        self._cluster.own = self._taken()
        return self._sites

    def limits(self, units: Mapping[str, str]) -> dict[str, int]:
        """Without what others use: a plan that counts on it would wait for them. What is not as it
        was placed would start anew."""
        at = self._at if dict(units) == self._units else {}
        return limits(units, self._cluster.bundles, self._cluster.open_nodes, at)

    @property
    def wait_s(self) -> float:
        return float(self._cluster.settings.wait_s)

    def look_again(self, after_s: float) -> None:
        assert self._group is None, "placed already"
        super().look_again(after_s)
        self._cluster.look_without_own()

    @property
    def cores(self) -> int:
        """Where this machine is the only one: its own, whatever Ray was told."""
        nodes = self._cluster.nodes
        if all(node.host == self.host for node in nodes):
            return super().cores
        return int(sum(node.resources.get("CPU", 0.0) for node in nodes))

    def start(self, spec: ProcessSpec) -> RayHandle:
        log = self.admitted(spec, self._handles.get(spec.name), closed=self._closed)
        actor = self._actor(spec)
        self._handles[spec.name] = handle = RayHandle(
            spec, self._ray, actor, log, lost=lambda: self._cluster.lost
        )
        return handle

    def close(self, grace_s: float = GRACE_S) -> None:
        self._closed = True
        for handle in self._handles.values():
            handle.ask_to_end(grace_s)
        deadline = time.monotonic() + grace_s
        for handle in self._handles.values():
            handle.end_by(deadline)
        self._cluster.own = None
        if self._cluster.has_ended():
            return
        self._dismiss()
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
            self._group = None

    def _dismiss(self) -> None:
        """Actors that can be reached tidy up first."""
        leaving = [handle.leave() for handle in self._handles.values()]
        asked = [answer for answer in leaving if answer is not None]
        if asked:
            self._ray.wait(asked, num_returns=len(asked), timeout=_LEAVE_S)
        for handle in self._handles.values():
            handle.end_actor()

    def _actor(self, spec: ProcessSpec) -> Any:
        from ray.util import scheduling_strategies as strategies

        site = self._sites.get(spec.name)
        if site is None:
            here = self._ray.get_runtime_context().get_node_id()
            place = strategies.NodeAffinitySchedulingStrategy(here, soft=False)
            options: dict[str, Any] = {"num_cpus": 0}
        else:
            own = dict(self._cluster.bundles[self._units[spec.name]].resources)
            place = strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=list(self._units).index(spec.name)
            )
            cpus, gpus = own.pop("CPU", 0.0), own.pop("GPU", 0.0)
            options = {"num_cpus": cpus, "num_gpus": gpus, "resources": own}
        host = site.host if site is not None else self.host
        # With one thread: beside several, Ray's own would wake up a hundred times a second.
        options |= {"max_concurrency": 1, "max_restarts": 0, "scheduling_strategy": place}
        made = self._ray.remote(Keeper).options(**options)
        return made.remote(spec.name, str(self._own_folder), host)

    def _reachable(self) -> dict[str, str]:
        """A label that keeps nodes out which Ray has not yet given up."""
        silent = self._cluster.silent
        return {_NODE_ID: f"!in({','.join(silent)})"} if silent else {}

    def _taken(self) -> dict[str, dict[str, float]]:
        """By node."""
        found: dict[str, dict[str, float]] = {}
        for name, at in self._at.items():
            taken = found.setdefault(at, {})
            for resource, count in self._cluster.bundles[self._units[name]].resources.items():
                taken[resource] = taken.get(resource, 0.0) + count
        return found

    def _await_room(self) -> None:
        """Until the cluster has made room, for which it may have to get nodes."""
        wait_s = self._cluster.settings.wait_s
        deadline = time.monotonic() + wait_s
        while not self._group.wait(timeout_seconds=_LOOK_S):
            if time.monotonic() > deadline:
                self._cluster.look_without_own()
                self._ray.util.remove_placement_group(self._group)
                self._group = None
                raise NoRoomError("ray", self._why_no_room(wait_s))

    def _why_no_room(self, wait_s: float) -> str:
        missing = lacking(self._units, self._cluster.bundles, self._cluster.nodes)
        if missing is not None:
            fix = "lower the limit, give another plan, or add nodes"
            return f"the cluster lacks what the plan needs: {missing}: {fix}"
        free = self._cluster.open_nodes
        missing = lacking(self._units, self._cluster.bundles, free, "free are")
        missing = missing or f"free by now are {shown(free)}"
        problem = f"has no room for the plan after {wait_s:g} s, since others use it"
        return f"the cluster {problem}: {missing}: wait for them, or raise ray.wait_s"
