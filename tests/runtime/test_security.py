"""Who does not hold the key of a run can neither read nor change it, nor end it."""

import base64
import stat
import threading

import pytest

from heterps.errors import HeterPSError, ServerError, WorkerLostError
from heterps.events import read_events
from heterps.ps.client import Client
from heterps.ps.processes import registrations
from heterps.runtime.channel import Mesh
from heterps.runtime.prepare import prepare
from heterps.runtime.run_folder import RunFolder
from heterps.runtime.stop import Stop
from heterps.runtime.training import train_run
from heterps.testing.forking import ForkEngine
from heterps.testing.runs import small_job
from heterps.wire.keys import subkey

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WRONG = bytes(32)


class Recorder(ForkEngine):
    """Keeps what others on the machine can see of the processes."""

    seen: list[str] = []  # noqa: RUF012 - one for all engines of a run

    def start(self, spec):
        self.seen.append(f"{spec.arguments} {spec.variables()}")
        return super().start(spec)


class Stranger(threading.Thread):
    """Tries everything once, without the key; ``said`` is what it was answered."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self._path = path
        self.said = {}

    def run(self):
        found = registrations(self._path)
        addresses, generation = [entry.address for entry in found], found[0].generation
        with Client(addresses, WRONG, generation=generation, timeout_s=20.0) as client:
            self._try("stats", client.stats)
            self._try("read", lambda: client.table("narrow"))
            self._try("save", lambda: client.save(self._path.parent / "stolen"))
            self._try("advance", lambda: client.advance(generation + 1))
        self._try("control", lambda: self._join(subkey(WRONG, "control"), generation))

    def _join(self, key, generation):
        address = f"ipc://{self._path}/sockets/control"
        with Mesh(key, generation, (0, 0)) as mesh:
            mesh.connect({(1, 0): address}, timeout_s=5.0)

    def _try(self, what, attempt):
        try:
            attempt()
            self.said[what] = "done"
        except HeterPSError as error:
            self.said[what] = error


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """The folder of a run that a stranger has met, and the stranger. It goes on for a while after
    that."""
    folder = tmp_path_factory.mktemp("run")
    job = small_job(folder, "two_emb", (2, 1), servers__count=2, workload__epochs=1e4)
    setup, stop, steps = prepare(job), Stop(), []
    stranger = Stranger(folder / "run")

    def report(status):
        if status.step and stranger.ident is None:
            stranger.start()
        elif status.step and not stranger.is_alive():
            steps.append(status.step)
            if steps[-1] > steps[0] and not stop.asked:
                stop.ask()

    Recorder.seen = []
    with (
        RunFolder.create(folder / "run", setup.job, setup.plan_document()) as opened,
        pytest.raises(KeyboardInterrupt),
    ):
        train_run(setup, opened, report, Recorder, stop=stop)
    return opened, stranger


def test_the_servers_refuse_a_stranger(attacked):
    said = attacked[1].said
    for what in ("stats", "read", "save", "advance"):
        assert isinstance(said[what], ServerError), what
        assert "not this run's key" in str(said[what]), what
    assert not (attacked[0].path.parent / "stolen").exists()


def test_the_coordinator_does_not_take_a_stranger_for_a_worker(attacked):
    assert isinstance(attacked[1].said["control"], WorkerLostError)


def test_the_run_goes_on_undisturbed(attacked):
    kinds = {event["kind"] for event in read_events(attacked[0].path / "events.jsonl")}
    assert "snapshot" in kinds
    assert "failure" not in kinds


def test_the_key_is_its_owners_alone_and_another_for_each_run(attacked, tmp_path):
    folder = attacked[0]
    mode = (folder.path / "key").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    with RunFolder.create(tmp_path / "other", folder.job) as other:
        assert folder.key != other.key


def test_the_key_stands_in_no_argument_no_environment_and_no_other_file(attacked):
    key = attacked[0].key
    forms = [key, key.hex().encode(), base64.b64encode(key)]
    assert len(Recorder.seen) == 5
    for seen in Recorder.seen:
        assert not any(form in seen.encode() for form in forms)
    files = [file for file in attacked[0].path.rglob("*") if file.is_file() and file.name != "key"]
    assert len(files) > 10
    for file in files:
        content = file.read_bytes()
        assert not any(form in content for form in forms), file
