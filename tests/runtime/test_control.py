import threading

import pytest
import torch

from heterps.errors import HeterPSError, WireError, WorkerLostError
from heterps.runtime.control import Desk, Line
from heterps.wire.wake import Wake

pytestmark = pytest.mark.slow
KEY, OTHER = bytes(range(32)), bytes(32)
PATIENCE = 600  # looks of a tenth of a second


class Office:
    """A coordinator whose desk is looked after by a thread, as connecting needs answers."""

    def __init__(self, folder, **options):
        self.desk = Desk(KEY, 3, **options)
        self.address = self.desk.listen(f"ipc://{folder}/control")

    def line(self, key=KEY, generation=3, number=0, **options):
        """Connects while the desk is listening."""
        done, found = threading.Event(), []

        def connect():
            try:
                wake = Wake()
                found.append(Line(key, generation, number, self.address, wake=wake, **options))
            except HeterPSError as error:
                found.append(error)
            done.set()

        threading.Thread(target=connect, daemon=True).start()
        while not done.is_set():
            self.desk.receive(0.05)
        if isinstance(found[0], HeterPSError):
            raise found[0]
        return found[0]

    def hear(self, kind):
        for _ in range(PATIENCE):
            for message in self.desk.receive(0.1):
                if message.kind == kind:
                    return message
        raise AssertionError(f"heard nothing of '{kind}'")


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def encrypt(request):
    return request.param


def test_commands_and_reports_carry_fields_and_tensors(tmp_path, encrypt):
    office = Office(tmp_path, encrypt=encrypt)
    line = office.line(number=5, encrypt=encrypt)
    weight = torch.rand(100, 3)
    line.send("weights", {"loss": 0.5, "names": ["a", "b"]}, {"w": weight})
    heard = office.hear("weights")
    assert (heard.sender, heard.fields) == (5, {"loss": 0.5, "names": ["a", "b"]})
    assert torch.equal(heard.tensors["w"], weight)
    office.desk.send(5, "load", {"to": {"1": 2}}, {"w": weight * 2})
    told = line.wait(60.0)
    assert (told.kind, told.fields) == ("load", {"to": {"1": 2}})
    assert torch.equal(told.tensors["w"], weight * 2)
    line.close()
    office.desk.close()


def test_a_worker_tells_that_it_lives_and_how_far_it_has_come(tmp_path):
    office = Office(tmp_path)
    line = office.line()
    line.progress = 17
    while office.hear("beat").fields["progress"] != 17:
        pass
    line.close()
    office.desk.close()


@pytest.mark.parametrize(("key", "generation"), [(OTHER, 3), (KEY, 2)], ids=["key", "generation"])
def test_a_stranger_is_refused_and_the_others_go_on(tmp_path, key, generation):
    office = Office(tmp_path)
    line = office.line(number=1)
    with pytest.raises(HeterPSError):
        office.line(key=key, generation=generation, number=2)
    line.send("here")
    assert office.hear("here").sender == 1
    line.close()
    office.desk.close()


def test_what_was_sent_last_still_arrives(tmp_path):
    office = Office(tmp_path)
    line = office.line()
    line.send("failed", {"problem": "on purpose"})
    closing = threading.Thread(target=line.close)
    closing.start()
    assert office.hear("failed").fields == {"problem": "on purpose"}
    closing.join()
    office.desk.close()


def test_a_coordinator_that_has_gone_ends_the_line(tmp_path):
    office = Office(tmp_path)
    line = office.line()
    office.desk.close()
    assert line.wait(60.0).kind == "lost"
    with pytest.raises(WireError, match="the coordinator: "):
        line.check()
    line.close()


def test_a_worker_that_is_not_there_cannot_be_told(tmp_path):
    office = Office(tmp_path)
    with pytest.raises(WorkerLostError) as caught:
        office.desk.send(4, "stop")
    assert caught.value.replica == 4
    office.desk.close()
