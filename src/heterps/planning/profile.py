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


class Moved(Record):
    """Bytes for a profile batch: towards the loss or the parameter servers, and back."""

    there_bytes: Bytes
    back_bytes: Bytes


class LayerProfile(Record):
    """``cut`` is what crosses a cut before the layer, ``rows`` what it exchanges with the parameter
    servers: ids, rows and, with ids once more, their gradients."""

    name: Text
    kind: AnyText
    input_bytes: Bytes
    weight_bytes: Bytes
    on: dict[str, LayerOnType]
    send: dict[str, SendFigures] = Field(default_factory=dict)
    cut: Moved | None = None
    rows: Moved | None = None

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
    ``link_mbps`` are what was found between hosts, where units and servers are on several;
    ``hosts`` has room for so many units on each, ``servers_on`` those of the parameter servers.
    ``crowding``: how much longer layers take for each other unit that is at work on the host, which
    is in ``alpha`` for units of the same stage. ``summing`` is the share of ``sync_s`` in which
    replicas add up with their own threads, rather than wait for a link or for each other.
    ``first_stage_s``, ``middle_stage_s`` and ``last_stage_s``: what a micro-batch takes the first,
    the last and any other of several stages beyond what its layers take."""

    source: Text
    key: Text | None = None
    units: tuple[Positive, ...] = ()
    spread: Amount | None = None
    residual: Amount | None = None
    link_ms: Amount | None = None
    link_mbps: Amount | None = None
    hosts: dict[str, Positive] = Field(default_factory=dict)
    servers_on: tuple[Text, ...] = ()
    crowding: Amount = 0.0
    summing: Share = 0.0
    first_stage_s: Amount | None = None
    middle_stage_s: Amount | None = None
    last_stage_s: Amount | None = None


class Profile(Record):
    """The layers of a model in order, measured at ``batch_size`` samples on one unit of each type,
    or derived: ``source`` says which, and ``types`` for each of them."""

    model: AnyText = "model"
    batch_size: Positive
    layers: Annotated[tuple[LayerProfile, ...], AfterValidator(_checked)]
    source: Text | None = None
    machine: dict[str, Any] = Field(default_factory=dict)
    types: dict[str, TypeSource] = Field(default_factory=dict)

    def beside_layers_s(self, types: Sequence[str]) -> list[float]:
        """What a micro-batch takes each stage of a plan, of which these are the types, beyond what
        its layers take as a part of one stage alone: as far as it was measured."""
        last = len(types) - 1
        places = ["first", *["middle"] * (last - 1), "last"] if last else [""]
        return [
            self._beside_layers_s(name, place) for name, place in zip(types, places, strict=True)
        ]

    def _beside_layers_s(self, type_name: str, place: str) -> float:
        own = self.types.get(type_name)
        if own is None or not place:
            return 0.0
        known = {"first": own.first_stage_s, "middle": own.middle_stage_s, "last": own.last_stage_s}
        # In the middle as in the first, micro-batches come back after others were worked on.
        found = own.first_stage_s if known[place] is None else known[place]
        return found or 0.0
