"""Published figures of common resource types, with sources and dates (types.yaml)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import Field

from heterps.job.fields import Amount, Positive, Record, Share, Text


class Hardware(Record):
    """What one unit can do: operations and bytes a second. ``efficiency`` is the share of the peak
    that layers reach, ``alpha`` and ``beta`` the shares of compute and communication that
    parallelise: assumptions, all three."""

    peak_flops: Amount
    memory_bytes_per_s: Amount
    link_bytes_per_s: Amount
    efficiency: Share = 0.4
    alpha: Share = 0.99
    beta: Share = 0.9


class CatalogEntry(Record):
    """``price_from`` says whose price it is, and when, or why there is none."""

    title: Text
    device: Text
    price_from: Text
    hardware: Hardware
    sources: tuple[Text, ...] = Field(min_length=1)
    price_per_hour: Amount | None = None
    memory_gib: Positive | None = None

    def as_type(self) -> dict[str, Any]:
        """The fields of a resource type that it knows."""
        fields = {"device": self.device, "hardware": self.hardware.as_document()}
        known = {"price_per_hour": self.price_per_hour, "memory_gib": self.memory_gib}
        return fields | {name: value for name, value in known.items() if value is not None}


@cache
def catalog() -> dict[str, CatalogEntry]:
    text = (files(__package__) / "types.yaml").read_text(encoding="utf-8")
    documents = yaml.safe_load(text)
    return {name: CatalogEntry.parse(entry, name) for name, entry in documents.items()}
