"""What a run tells about itself, from the reports of workers alone."""

import pytest

from heterps.events import EventLog, read_events
from heterps.runtime.findings import Findings
from heterps.runtime.meter import BUSY
from heterps.runtime.prepare import prepare
from heterps.runtime.progress import Progress
from heterps.testing.runs import small_job


@pytest.fixture
def story(tmp_path):
    """Replicas that report every 5 s after having taken so many seconds for 100 samples each;
    events of the run, and the lines that a person sees."""

    def tell(*paces):
        setup, now, notes = prepare(small_job(tmp_path, "two_emb", (len(paces),))), [0.0], []
        clock = lambda: now[0]  # noqa: E731
        progress = Progress(setup.layout, None, 10, 0.0, clock)
        names = [f"replica-{number}" for number in range(len(paces))]
        with EventLog(tmp_path / "events.jsonl") as events:
            findings = Findings(setup, progress, names, events, notes.append, clock)
            for look in range(1, 6):
                now[0] = 5.0 * look
                for worker, pace in enumerate(paces):
                    meter = dict.fromkeys(BUSY, 0.0) | {"forward_s": look * pace, "wall_s": now[0]}
                    said = {"meter": meter, "staleness": {}, "batch": 0, "losses": []}
                    progress.heard(worker, said | {"samples": 100 * look})
                findings.look()
        return list(read_events(tmp_path / "events.jsonl")), notes

    return tell


def test_a_slow_replica_is_told_with_its_figures(story):
    (event,), notes = story(1.0, 1.1, 4.0)
    assert (event["kind"], event["process"]) == ("slow_replica", "replica-2")
    assert event["sample_s"] == pytest.approx(0.04)
    assert event["peers_sample_s"] == pytest.approx(0.0105)
    assert notes == ["replica-2 takes 3.8 times as long as its peers for a sample"]


def test_replicas_of_one_pace_are_not_worth_a_word(story):
    assert story(1.0, 1.2, 0.9) == ([], [])
