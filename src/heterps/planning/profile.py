"""What each layer costs on each resource type, measured or derived."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from heterps.job.fields import Amount, AnyText, Bytes, Positive, Record, Share, Text, refuse


class LayerOnType(Record):
    """Seconds for a profile batch on one unit; ``alpha`` and ``beta`` are the shares of compute and
    of communication that parallelise over units. ``sync_s`` is paid once a batch of any size."""

    compute_s: Amount
    comm_s: Amount
    alpha: Share
    beta: Share
    transfer_s: Amount
    sync_s: Amount = 0.0


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
    ``cut_after_s`` and ``cut_before_s``: what computing takes longer in a stage with others after
    it, and in one with others before it, than in one stage alone."""

    source: Text
    key: Text | None = None
    units: tuple[Positive, ...] = ()
    spread: Amount | None = None
    residual: Amount | None = None
    link_ms: Amount | None = None
    link_mbps: Amount | None = None
    cut_after_s: Amount | None = None
    cut_before_s: Amount | None = None


class Profile(Record):
    """The layers of a model in order, measured at ``batch_size`` samples on one unit of each type,
    or derived: ``source`` says which, and ``types`` for each of them."""

    model: AnyText = "model"
    batch_size: Positive
    layers: Annotated[tuple[LayerProfile, ...], AfterValidator(_checked)]
    source: Text | None = None
    machine: dict[str, Any] = Field(default_factory=dict)
    types: dict[str, TypeSource] = Field(default_factory=dict)

    def cut_s(self, first: int, last: int, type_name: str) -> float:
        """What these layers take longer as one stage of several than their figures say, which are
        of one stage alone: as if there were one layer more."""
        own, end = self.types.get(type_name), len(self.layers) - 1
        if own is None:
            return 0.0
        after = own.cut_after_s if last < end else None
        before = own.cut_before_s if first > 0 else None
        return (after or 0.0) + (before or 0.0)
