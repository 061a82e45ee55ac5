"""Two stages on hosts of their own, over tcp, and the link between them goes."""

from contextlib import ExitStack

import pytest

from heterps.events import read_events
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.training import train_run
from heterps.testing.namespaces import NamespaceError, TwoHosts
from heterps.testing.runs import outcome, run, small_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def hosts(lacking):
    with ExitStack() as stack:
        try:
            made = stack.enter_context(TwoHosts())
        except NamespaceError as error:
            lacking(f"needs network namespaces: {error}")
        yield made


def test_a_cut_link_makes_the_run_start_again_and_changes_nothing(hosts, tmp_path):
    changes = {"workload__epochs": 4, "snapshot__every": 10}
    job, path, cuts = small_job(tmp_path, "two_emb", (1, 1), **changes), tmp_path / "run", []
    engine = hosts.engine({"stage-0-replica-0": 0, "stage-1-replica-0": 1})

    def report(status):
        if status.step >= 20 and not cuts:
            cuts.append(status.step)
            hosts.cut()

    setup = prepare(job)
    with RunFolder.create(path, setup.job, setup.plan_document()) as folder:
        result = train_run(setup, folder, report, engine, notice=lambda line: hosts.mend())
    assert result.failures == 1
    (failure,) = (e for e in read_events(path / "events.jsonl") if e["kind"] == "failure")
    assert (failure["how"], failure["action"]) == ("lost", "restart")
    assert outcome(folder).equals(run(job, tmp_path / "undisturbed")[1])
