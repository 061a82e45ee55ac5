"""Random operation sequences: the store in C++ never differs from the reference by a bit."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from heterps.testing.tables import make_store
from heterps.testing.traffic import TableTraffic

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


class BudgetedTraffic(TableTraffic):
    """Beside the store that is all in memory, some that hold only a few rows of it."""

    def __init__(self):
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.files = itertools.count()

    def others(self, dim, rule, settings):
        return [
            make_store(
                "native",
                dim,
                rule,
                memory_bytes=memory_bytes,
                path=str(Path(self.scratch.name) / f"{next(self.files)}.cold"),
                threads=threads,
                **settings,
            )
            for memory_bytes, threads in ((1, 1), (20_000, 1), (20_000, 2))
        ]

    def teardown(self):
        super().teardown()
        self.stores = []
        self.scratch.cleanup()


TestTraffic = TableTraffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=25, **QUIET)


@pytest.mark.slow
class TestLongTraffic(TableTraffic.TestCase):
    settings = settings(max_examples=300, stateful_step_count=60, **QUIET)


class TestBudgetedTraffic(BudgetedTraffic.TestCase):
    settings = settings(max_examples=30, stateful_step_count=25, **QUIET)


@pytest.mark.slow
class TestLongBudgetedTraffic(BudgetedTraffic.TestCase):
    settings = settings(max_examples=200, stateful_step_count=60, **QUIET)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestSoakTraffic(BudgetedTraffic.TestCase):
    settings = settings(max_examples=5000, stateful_step_count=100, **QUIET)
