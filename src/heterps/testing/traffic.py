"""Random traffic on several stores at once: whatever is asked, all have to answer the same bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from heterps.ps.initial import INITIALIZERS, Initializer
from heterps.ps.rules import RULES, Adagrad, Adam, Ftrl, RowwiseAdagrad, Rule, Sgd
from heterps.testing.tables import STORES, assert_same_rows, make_store, pull, rows_of

DIMS = (1, 3, 8, 16, 17)
_EDGES = (-(2**63), -1, 2**63 - 1)

rules = st.sampled_from(
    [
        *(kind() for kind in RULES.values()),
        Sgd(lr=0.0),
        Adagrad(lr=0.3, eps=1e-3, initial_accumulator=0.7),
        RowwiseAdagrad(lr=0.3, eps=1e-3, initial_accumulator=0.7),
        Adam(lr=0.2, beta1=0.0, beta2=0.5, eps=1e-3),
        Ftrl(lr=0.3, beta=0.1, l1=0.4, l2=0.2),
    ]
)
initializers = st.sampled_from([kind(0.3) for kind in INITIALIZERS.values()])
limits = st.fixed_dictionaries(
    {
        "admission": st.sampled_from([0, 0, 1, 2, 3]),
        "evict_after": st.sampled_from([0, 0, 1, 3, 8]),
        "max_rows": st.sampled_from([0, 0, 1, 5, 40]),
        "staleness": st.sampled_from([0, 2]),
        "seed": st.sampled_from([0, 1, 2**64 - 1]),
    }
)
rates = st.sampled_from([None, None, 0.01, 0.3])


@st.composite
def id_lists(draw: st.DrawFn) -> npt.NDArray[np.int64]:
    """A few ids with repeats and extremes, or a run of many."""
    if draw(st.integers(0, 3)) == 0:
        first, size = draw(st.integers(0, 400)), draw(st.integers(1, 300))
        return np.arange(first, first + size)
    few = st.one_of(st.integers(0, 60), st.sampled_from(_EDGES))
    return np.array(draw(st.lists(few, max_size=40)), np.int64)


def gradients(seed: int, rows: int, dim: int) -> npt.NDArray[np.float32]:
    """Normal ones, with zeros of both signs and some that are large or tiny."""
    rng = np.random.default_rng(seed)
    scale = rng.choice([0.0, -0.0, 1e-20, 0.01, 1.0, 1.0, 100.0], size=(rows, 1))
    drawn: npt.NDArray[np.float64] = rng.normal(size=(rows, dim)) * scale
    return drawn.astype(np.float32)


class TableTraffic(RuleBasedStateMachine):
    """The reference and any number of other stores; subclasses say which in ``others``."""

    stores: list[Any]
    fresh: Callable[[], list[Any]]

    def others(self, dim: int, rule: Rule, settings: dict[str, Any]) -> list[Any]:
        """The stores to compare with the reference."""
        return [
            make_store(kind, dim, rule, threads=threads, **settings)
            for kind in STORES
            for threads in ((1, 3) if kind == "native" else (1,))
        ]

    @initialize(dim=st.sampled_from(DIMS), rule=rules, initial=initializers, settings=limits)
    def open(self, dim: int, rule: Rule, initial: Initializer, settings: dict[str, Any]) -> None:
        self.dim = dim
        self.captures: list[Any] = []
        self.settings = {"initial": initial, **settings}
        self.fresh = lambda: [
            make_store("reference", dim, rule, **self.settings),
            *self.others(dim, rule, dict(self.settings)),
        ]
        self.stores = self.fresh()

    def ask(self, call: Callable[[Any], Any]) -> Any:
        """All stores give the same answer, or refuse alike."""
        answers = [_answer(call, store) for store in self.stores]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    @rule(ids=id_lists())
    def pull(self, ids: npt.NDArray[np.int64]) -> None:
        self.ask(lambda store: pull(store, ids).tobytes())

    @rule(ids=id_lists(), seed=st.integers(0, 99), lr=rates)
    def push(self, ids: npt.NDArray[np.int64], seed: int, lr: float | None) -> None:
        grads = gradients(seed, len(ids), self.dim)
        self.ask(lambda store: store.push(ids, grads, lr))

    @rule(ahead=st.integers(0, 3), parts=st.integers(0, 3), lr=rates)
    def announce(self, ahead: int, parts: int, lr: float | None) -> None:
        batch = max(self.stores[0].committed + ahead, 0)
        self.ask(lambda store: store.announce(batch, parts, lr))

    @rule(
        ahead=st.integers(0, 3),
        part=st.tuples(st.integers(0, 2), st.integers(0, 1)),
        ids=id_lists(),
        seed=st.integers(0, 99),
    )
    def accumulate(
        self, ahead: int, part: tuple[int, int], ids: npt.NDArray[np.int64], seed: int
    ) -> None:
        batch = max(self.stores[0].committed + ahead, 0)
        grads = gradients(seed, len(ids), self.dim)
        self.ask(lambda store: store.accumulate(batch, *part, ids, grads))

    @rule(batch=st.integers(-1, 5))
    def wait(self, batch: int) -> None:
        self.ask(lambda store: store.wait(max(self.stores[0].committed + batch, 0), 0.0))

    @rule(ahead=st.integers(0, 2))
    def skip_batches(self, ahead: int) -> None:
        batch = self.stores[0].committed + ahead
        self.ask(lambda store: setattr(store, "committed", batch))

    @rule(lr=st.sampled_from([0.01, 0.2]))
    def set_lr(self, lr: float) -> None:
        self.ask(lambda store: setattr(store, "lr", lr))

    @rule(ids=id_lists(), drain=st.booleans())
    def prefetch(self, ids: npt.NDArray[np.int64], drain: bool) -> None:
        for store in self.stores:
            store.prefetch(ids)
            if drain:
                store.drain()

    @rule(ids=id_lists())
    def remove(self, ids: npt.NDArray[np.int64]) -> None:
        self.ask(lambda store: store.remove(ids))

    @rule(ids=id_lists(), seed=st.integers(0, 99))
    def restore(self, ids: npt.NDArray[np.int64], seed: int) -> None:
        ids = np.unique(ids)
        rng = np.random.default_rng(seed)
        width = self.stores[0].rule.state_width(self.dim)
        values, state = (gradients(seed, len(ids), k) for k in (self.dim, width))
        frequency = rng.integers(1, 5, len(ids)).astype(np.uint32)
        last_seen = rng.integers(0, self.stores[0].step + 1, len(ids)).astype(np.uint32)
        self.ask(lambda store: store.restore(ids, values, np.abs(state), frequency, last_seen))

    @precondition(lambda self: not self.captures)
    @rule(back=st.sampled_from([0, 1, 3, 1000]))
    def begin_capture(self, back: int) -> None:
        since = max(self.stores[0].step - back, -1)
        self.captures = [store.capture(since) for store in self.stores]
        self.blocks: list[list[Any]] = [[] for _ in self.stores]
        for read in ("rows", "step", "committed"):
            self.same(map(operator.attrgetter(read), self.captures))
        self.same(capture.bucket_counts.tobytes() for capture in self.captures)
        self.same(sorted(c.pending_ids.tolist()) for c in self.captures)

    @precondition(lambda self: self.captures)
    @rule(rows=st.sampled_from([1, 7, 100]))
    def read_capture(self, rows: int) -> None:
        for capture, blocks in zip(self.captures, self.blocks, strict=True):
            block = capture.next(rows)
            if block is not None:
                assert 0 < len(block[0]) <= rows
                blocks.append(block)

    @precondition(lambda self: self.captures)
    @rule(ok=st.booleans(), whole=st.booleans())
    def finish_capture(self, ok: bool, whole: bool) -> None:
        if whole:
            for capture, blocks in zip(self.captures, self.blocks, strict=True):
                blocks.extend(iter(lambda c=capture: c.next(13), None))  # type: ignore[misc]
            self.same(_sorted_bytes(blocks) for blocks in self.blocks)
        for capture in self.captures:
            capture.finish(ok and whole)
        self.captures = []

    @precondition(lambda self: not self.captures)
    @rule()
    def move_into_new_stores(self) -> None:
        """What a snapshot does: the rows, the pending ids and the counters are all there is."""
        before = self.stores
        self.stores = self.fresh()
        for old, new in zip(before, self.stores, strict=True):
            held = rows_of(old)
            if len(held["ids"]):
                columns = ("ids", "values", "state", "frequency", "last_seen")
                new.restore(*(held[column] for column in columns))
            new.restore_pending(
                held["pending_ids"], held["pending_counts"], held["pending_last_seen"]
            )
            new.step, new.committed, new.lr = old.step, old.committed, old.lr

    def same(self, values: Any) -> None:
        seen = list(values)
        assert all(value == seen[0] for value in seen), seen

    def teardown(self) -> None:
        for capture in getattr(self, "captures", []):
            capture.finish(False)
        for store in getattr(self, "stores", [])[1:]:
            assert len(store) == len(self.stores[0])
            assert_same_rows(self.stores[0], store)


def _answer(call: Callable[[Any], Any], store: Any) -> Any:
    try:
        return call(store)
    except ValueError:
        return ValueError


def _sorted_bytes(blocks: list[Any]) -> list[bytes]:
    if not blocks:
        return []
    columns = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    order = np.argsort(columns[0])
    return [column[order].tobytes() for column in columns]
