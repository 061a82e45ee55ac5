"""Resource types and the cluster made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, model_validator

from heterps.errors import UnknownNameError
from heterps.job.catalog import Hardware, catalog
from heterps.job.fields import Amount, Positive, Record, Text, Units, refuse, shown
from heterps.job.ray import RayNeeds


class ResourceType(Record):
    """A kind of unit that can be rented: one CPU core, one GPU, one XPU.

    ``memory_gib`` absent means that memory does not limit a stage. ``slowdown``, ``link_mbps`` and
    ``link_ms`` make a slower unit out of a faster one (emulation). With ``catalog`` the fields that
    are not given, ``hardware`` among them, are those of the catalogue. ``ray`` is what a unit takes
    of a node under the Ray engine.
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
    catalog: Text | None = None
    hardware: Hardware | None = None
    ray: RayNeeds | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_catalog(cls, document: Any) -> Any:
        if not isinstance(document, Mapping) or not isinstance(document.get("catalog"), str):
            return document
        return _filled(document)

    def model_post_init(self, _context: Any) -> None:
        if self.slowdown is not None and self.slowdown < 1:
            raise refuse(f"expected 1 or more, got {shown(self.slowdown)}", "slowdown")
        if self.link_mbps == 0:
            raise refuse("expected more than 0; leave it out for no bound", "link_mbps")


def _filled(document: Mapping[str, Any]) -> dict[str, Any]:
    name, known = document["catalog"], catalog()
    if name not in known:
        unknown = UnknownNameError("", "entry of the catalogue", name, known)
        raise refuse(unknown.problem, "catalog")
    filled: dict[str, Any] = {"name": name, **known[name].as_type(), **document}
    if "price_per_hour" not in filled:
        problem = f"is missing, and the catalogue has none for {name} ({known[name].price_from})"
        raise refuse(problem, "price_per_hour")
    own = document.get("hardware")
    if isinstance(own, Mapping):
        filled["hardware"] = known[name].hardware.as_document() | dict(own)
    return filled


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
