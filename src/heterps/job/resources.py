"""Resource types and the cluster made of them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from heterps.job.fields import Amount, Positive, Record, Text, Units, refuse, shown


class ResourceType(Record):
    """A kind of unit that can be rented: one CPU core, one GPU, one XPU.

    ``memory_gib`` absent means that memory does not limit a stage. ``slowdown``, ``link_mbps`` and
    ``link_ms`` make a slower unit out of a faster one (emulation).
    """

    name: Text
    price_per_hour: Amount
    limit: Units
    memory_gib: Amount | None = None
    device: Text = "cpu"
    threads: Positive = 1
    slowdown: Amount | None = None
    link_mbps: Amount | None = None
    link_ms: Amount | None = None

    def model_post_init(self, _context: Any) -> None:
        if self.slowdown is not None and self.slowdown < 1:
            raise refuse(f"expected 1 or more, got {shown(self.slowdown)}", "slowdown")
        if self.link_mbps == 0:
            raise refuse("expected more than 0; leave it out for no bound", "link_mbps")


def _checked(types: tuple[ResourceType, ...]) -> tuple[ResourceType, ...]:
    if not types:
        raise refuse("the cluster is empty; name at least one resource type")
    names = [entry.name for entry in types]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise refuse(f"resource type '{name}' stands twice", index, "name")
    return types


class Cluster(Record):
    """What can be rented, and how much of it."""

    types: Annotated[tuple[ResourceType, ...], AfterValidator(_checked)]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.types)

    def with_limits(self, limits: dict[str, int]) -> Cluster:
        """The same cluster with the named limits replaced."""
        changed = tuple(
            entry.model_copy(update={"limit": limits[entry.name]})
            if entry.name in limits
            else entry
            for entry in self.types
        )
        return self.model_copy(update={"types": changed})
