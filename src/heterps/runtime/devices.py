"""Which of the devices of its host a worker computes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch


def turns(wanted: Sequence[tuple[str, str]]) -> list[int]:
    """By worker, each with its host and device: how many before it on its host have such a one."""
    before: Counter[tuple[str, str]] = Counter()
    found = []
    for unit in wanted:
        found.append(before[unit])
        before[unit] += 1
    return found


def own_device(device: str, turn: int) -> str:
    """Those of one kind are taken in turn by who asks for any of them. Where something else, such
    as Ray with its GPUs, lets a process see its own alone, that is the one."""
    kind = device.partition(":")[0]
    there = 1 if kind == "cpu" else torch.get_device_module(kind).device_count()
    return in_turn(device, turn, there)


def in_turn(device: str, turn: int, there: int) -> str:
    return f"{device}:{turn % there}" if there > 1 and ":" not in device else device
