"""What each layer costs on each resource type, measured or derived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from heterps.job.fields import Amount, AnyText, Bytes, Positive, Record, Share, Text, refuse


class LayerOnType(Record):
    """Seconds for a profile batch on one unit; ``alpha`` and ``beta`` are the shares of compute and
    of communication that parallelise over units. ``sync_s`` is paid once a batch of any size.
    ``forward`` is the share of compute that comes before the layers after it can go on; the rest
    is backward."""

    compute_s: Amount
    comm_s: Amount
    alpha: Share
    beta: Share
    transfer_s: Amount
    sync_s: Amount = 0.0
    forward: Share | None = None


class SendFigures(Record):
    """What a stage of a type that cannot run the layer pays for sending to it."""

    transfer_s: Amount
    beta: Share


class LayerProfile(Record):
    name: Text
    kind: AnyText
    input_bytes: Bytes
    weight_bytes: Bytes
    on: dict[str, LayerOnType]
    send: dict[str, SendFigures] = Field(default_factory=dict)

    @property
    def held_bytes(self) -> int | float:
        """What the layer takes of a unit's memory: rows live in the parameter server."""
        return 0 if self.kind == "embedding" else self.weight_bytes


def _checked(layers: tuple[LayerProfile, ...]) -> tuple[LayerProfile, ...]:
    if not layers:
        raise refuse("the chain is empty; a model has at least one layer")
    seen: set[str] = set()
    for index, layer in enumerate(layers):
        if layer.name in seen:
            raise refuse(f"layer '{layer.name}' stands twice", index, "name")
        seen.add(layer.name)
    return layers


class TypeSource(Record):
    """Where the figures of a type are from: ``units`` are the numbers of them that were run,
    ``spread`` the relative deviation of what was timed, ``residual`` that of the fit over units.
    Figures with the same ``key`` were measured under the same conditions. ``link_ms`` (one way) and
    ``link_mbps`` are what was found between hosts, where units and servers are on several.
    ``as_first`` and ``as_last``: how many times as long layers compute in the first and in the last
    of two stages as they do in one stage alone; ``as_middle``: in the second of three, and with
    ``_of_three`` in the others of three."""

    source: Text
    key: Text | None = None
    units: tuple[Positive, ...] = ()
    spread: Amount | None = None
    residual: Amount | None = None
    link_ms: Amount | None = None
    link_mbps: Amount | None = None
    as_first: Amount | None = None
    as_middle: Amount | None = None
    as_last: Amount | None = None
    as_first_of_three: Amount | None = None
    as_last_of_three: Amount | None = None


class Profile(Record):
    """The layers of a model in order, measured at ``batch_size`` samples on one unit of each type,
    or derived: ``source`` says which, and ``types`` for each of them."""

    model: AnyText = "model"
    batch_size: Positive
    layers: Annotated[tuple[LayerProfile, ...], AfterValidator(_checked)]
    source: Text | None = None
    machine: dict[str, Any] = Field(default_factory=dict)
    types: dict[str, TypeSource] = Field(default_factory=dict)

    def in_each_stage(self, types: Sequence[str]) -> list[float]:
        """`in_stages` of every stage of a plan, of which these are the types."""
        return [self.in_stages(number, len(types), name) for number, name in enumerate(types)]

    def in_stages(self, number: int, count: int, type_name: str) -> float:
        """How many times as long layers of a type compute, as one stage of ``count``, as their
        figures say, which are of one stage alone: by what was measured of two stages and three."""
        own = self.types.get(type_name)
        if own is None or count == 1:
            return 1.0
        of_three = count > 2
        if number == 0:
            return (own.as_first_of_three if of_three else None) or own.as_first or 1.0
        if number == count - 1:
            return (own.as_last_of_three if of_three else None) or own.as_last or 1.0
        return own.as_middle or own.as_first or 1.0
