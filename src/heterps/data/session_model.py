"""Users, their past items and an item, with planted tastes.

Users and items belong to groups. A user's past items are mostly of the user's group. In ``match``,
an item is shown and the chance of a click depends on whether it is of that group, and on the item;
in ``next``, the item is the one that comes next, and every label is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from heterps.data.click_model import BLOCK_ROWS, Samples
from heterps.data.shuffle import key_of, mix64
from heterps.data.zipf import Zipf

_FAITHFUL = 0.8  # the share of items that are of the user's own group
_SHOWN = 0.5  # the same for the items that ``match`` shows
_MOST_PAST = 15
_GROUPS, _WEIGHTS = 21, 22

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SessionModel:
    """Item i is of group i mod ``groups``, and the (i / groups)-th most frequent one of it."""

    seed: int = 0
    ids: int = 100_000
    next_item: bool = False

    def section(self) -> dict[str, object]:
        past = {"name": "history", "multi": True, "space": "item"}
        return {"label": "label", "sparse": ["user", past, "item"]}

    def block(self, number: int) -> Samples:
        rng = np.random.Generator(np.random.Philox(key=key_of(self.seed, number)))
        user = Zipf(1.05, self.ids).draw(rng, BLOCK_ROWS)
        group = self._group(user)
        history = self._history(rng, group)
        share = _FAITHFUL if self.next_item else _SHOWN
        item, rank, same = self._items(rng, group, share)
        if self.next_item:
            chance = self._share_of(share, same) * np.exp(self._zipf.log_probability(rank))
            label = np.ones(BLOCK_ROWS, np.int8)
        else:
            chance = 1 / (1 + np.exp(-self._logits(item, same)))
            label = (rng.random(BLOCK_ROWS) < chance).astype(np.int8)
        columns = {"label": label, "user": user, "history": history, "item": item}
        return Samples(pa.table(columns), chance)

    @property
    def groups(self) -> int:
        return max(2, min(64, self.ids // 100))

    @cached_property
    def _zipf(self) -> Zipf:
        return Zipf(1.1, max(1, self.ids // self.groups))

    def _group(self, user: Ids) -> Ids:
        words = mix64(user.view(np.uint64) ^ np.uint64(key_of(self.seed, _GROUPS)))
        return (words % np.uint64(self.groups)).astype(np.int64)

    def _items(
        self, rng: np.random.Generator, group: Ids, share: float
    ) -> tuple[Ids, Ids, npt.NDArray[np.bool_]]:
        """An item for each of the users' groups, its rank, and whether it is of that group."""
        own = rng.random(len(group)) < share
        chosen = np.where(own, group, rng.integers(0, self.groups, len(group)))
        rank = self._zipf.draw(rng, len(group))
        return rank * self.groups + chosen, rank, chosen == group

    def _share_of(self, share: float, same: npt.NDArray[np.bool_]) -> Floats:
        """How likely an item's group is for a user."""
        likely: Floats = np.where(same, share, 0.0) + (1 - share) / self.groups
        return likely

    def _history(self, rng: np.random.Generator, group: Ids) -> pa.ListArray:
        lengths = rng.integers(0, _MOST_PAST + 1, BLOCK_ROWS)
        items, _, _ = self._items(rng, np.repeat(group, lengths), _FAITHFUL)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(offsets, items)

    def _logits(self, item: Ids, same: npt.NDArray[np.bool_]) -> Floats:
        words = mix64(item.view(np.uint64) ^ np.uint64(key_of(self.seed, _WEIGHTS)))
        liking = 2 * ((words >> np.uint64(11)) * 2.0**-53) - 1
        logits: Floats = (-2.7 + 2.5 * same + liking).astype(np.float64)
        return logits
