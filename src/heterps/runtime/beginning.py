"""Where a generation begins: a snapshot, another run's model, or the first weights."""

from __future__ import annotations

from torch import Tensor

from heterps.errors import HeterPSError, SnapshotError
from heterps.runtime.building import table_rates
from heterps.runtime.coordinator import Coordinator
from heterps.runtime.prepare import Setup
from heterps.runtime.snapshot import RECENT, RunSnapshot
from heterps.runtime.warm_start import read_warm_start


class DamagedStartError(HeterPSError):
    """The snapshot that a generation was to begin with turned out to be damaged."""

    def __init__(self, cause: SnapshotError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def restore(setup: Setup, coordinator: Coordinator, start: RunSnapshot) -> Tensor | None:
    """Loads a snapshot, and gives what it had of progressive metrics. Raises DamagedStartError."""
    try:
        coordinator.while_watching(lambda: coordinator.client.load(start.tables))
        state = start.state()
    except SnapshotError as error:
        raise DamagedStartError(error) from error
    _set_rates(setup, coordinator)
    recent = state.pop(RECENT, None)
    coordinator.load(state)
    return recent


def warm_start(setup: Setup, coordinator: Coordinator) -> None:
    """Loads the model that the job names, if it names one."""
    own, client = setup.chain, coordinator.client
    found = read_warm_start(setup.job, own.state_dict(), own.tables)
    if found is None:
        return
    coordinator.load(found.weights)
    rows = found.tables
    if rows is not None:
        coordinator.while_watching(lambda: client.load(rows, list(own.tables)))
        for name in own.tables:
            client.table(name).committed = -1
        _set_rates(setup, coordinator)


def _set_rates(setup: Setup, coordinator: Coordinator) -> None:
    """A snapshot brings the learning rates of the job that it was taken under."""
    for name, lr in table_rates(setup.job, setup.chain.tables).items():
        coordinator.client.table(name).lr = lr
