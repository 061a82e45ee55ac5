"""Replicas in threads: each has its own connections."""

import os
import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from heterps.errors import HeterPSError, WorkerLostError
from heterps.runtime.channel import Mesh
from heterps.runtime.collective import Alone, ChannelGroup, GlooGroup
from heterps.runtime.shared_group import SharedGroup
from heterps.wire import segments

pytestmark = pytest.mark.slow
KEY = bytes(range(32))
REPLICAS = 3


def in_threads(work):
    """What each replica's work gives; raises what one of them raised."""
    found, errors = {}, []

    def run(replica):
        try:
            found[replica] = work(replica)
        except HeterPSError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(REPLICAS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[replica] for replica in range(REPLICAS)]


def gloo_groups():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def make(replica):
        own = dist.TCPStore("127.0.0.1", store.port, is_master=False, wait_for_workers=False)
        return GlooGroup(own, 0, 1, replica, REPLICAS, "127.0.0.1")

    return in_threads(make)


def channel_groups(folder, encrypt):
    groups = [ChannelGroup(KEY, 0, 1, n, encrypt=encrypt) for n in range(REPLICAS)]
    address = groups[0].listen(f"ipc://{folder}/sum", REPLICAS)

    def join(replica):
        if replica:
            groups[replica].connect(address)
        else:
            groups[0].await_others()

    in_threads(join)
    return groups


def shared_groups():
    groups = [SharedGroup(1, n, REPLICAS) for n in range(REPLICAS)]
    meeting = groups[0].make_pipes()
    in_threads(lambda replica: groups[replica].join(meeting))
    return groups


@pytest.fixture(params=["gloo", "shared", "channel", "encrypted"])
def groups(request, tmp_path):
    if request.param in BESIDE:
        return BESIDE[request.param]()
    return channel_groups(tmp_path, request.param == "encrypted")


BESIDE = {"gloo": gloo_groups, "shared": shared_groups}


def make_tensors(replica, turn):
    generator = torch.Generator().manual_seed(10 * turn + replica)
    return [
        torch.randn(5, 3, generator=generator),
        torch.randn((), generator=generator, dtype=torch.float64),
        torch.randn(0, 2, generator=generator),
    ]


def test_all_get_the_sum_and_the_same_to_the_bit(groups):
    def work(replica):
        turns = []
        for turn in range(20):
            tensors = make_tensors(replica, turn)
            groups[replica].sum(tensors)
            turns.append(tensors)
        return turns

    found = in_threads(work)
    for turn in range(20):
        given = [make_tensors(replica, turn) for replica in range(REPLICAS)]
        for at, tensor in enumerate(found[0][turn]):
            torch.testing.assert_close(tensor, sum(tensors[at] for tensors in given))
            assert all(torch.equal(tensor, other[turn][at]) for other in found[1:])
    in_threads(lambda replica: groups[replica].close())


@pytest.mark.parametrize("kind", BESIDE)
def test_a_sum_that_was_begun_is_there_when_all_have_begun_it(kind):
    groups, ready = BESIDE[kind](), threading.Event()
    tensors = [torch.full((3,), float(replica)) for replica in range(REPLICAS)]
    finish = groups[0].begin([tensors[0]], ready.set)
    assert groups[0].beside
    assert not ready.is_set()
    tensors[0] += 7  # what was given is on its way
    others = [groups[n].begin([tensors[n]], lambda: None) for n in range(1, REPLICAS)]
    for source in groups[0].sources:
        source.clear()
    assert ready.wait(30)
    for each in (finish, *others):
        each()
    assert all(torch.equal(tensor, torch.full((3,), 3.0)) for tensor in tensors)
    for group in groups:
        group.close()


class Slow:
    """Sums that are there when a test says so."""

    def __init__(self):
        self.futures = []

    def allreduce(self, tensors):
        future = torch.futures.Future()
        self.futures.append(future)
        return SimpleNamespace(get_future=lambda: future)


def test_a_sum_of_several_types_is_there_when_the_last_of_them_is():
    group, ready = gloo_groups()[0], threading.Event()
    group._group = Slow()
    group.begin(make_tensors(0, 0), ready.set)
    first, last = group._group.futures
    last.set_result(None)
    assert not ready.is_set()
    first.set_result(None)
    assert ready.is_set()


@pytest.mark.parametrize("kind", ["channel", "shared"])
def test_replicas_are_added_in_their_order(kind, tmp_path):
    groups = shared_groups() if kind == "shared" else channel_groups(tmp_path, encrypt=False)
    values = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]
    expected = (values[0] + values[1]) + values[2]

    def work(replica):
        own = [values[replica].clone()]
        groups[replica].sum(own)
        return own[0]

    assert all(torch.equal(found, expected) for found in in_threads(work))
    in_threads(lambda replica: groups[replica].close())


def test_a_replica_that_dies_is_an_error_for_who_waits_for_it(tmp_path):
    groups = channel_groups(tmp_path, encrypt=False)
    groups[2]._mesh.close(failed=True)  # as the end of its process does
    with pytest.raises(WorkerLostError):
        groups[0].sum([torch.ones(3)])
    for group in groups[:2]:
        group.close()


def test_a_replica_with_which_memory_is_shared_may_die_too():
    groups = shared_groups()
    groups[2].close()
    with pytest.raises(WorkerLostError, match="replica 2 of it has ended"):
        groups[0].sum([torch.ones(3)])
    for group in groups[:2]:
        group.close()


def test_the_death_of_a_replica_ends_the_wait_for_a_sum_that_was_begun():
    groups, ready = shared_groups(), threading.Event()
    finish = groups[0].begin([torch.ones(3)], ready.set)
    groups[1].begin([torch.ones(3)], lambda: None)
    groups[2].close()
    for source in groups[0].sources:
        source.clear()
    assert ready.is_set()
    with pytest.raises(WorkerLostError, match="replica 2 of it has ended"):
        finish()
    for group in groups[:2]:
        group.close()


def test_one_replica_is_its_own_sum():
    tensor = torch.ones(3)
    Alone().sum([tensor])
    assert torch.equal(tensor, torch.ones(3))


def test_replicas_without_samples_add_nothing():
    groups = shared_groups()

    def work(replica):
        found = []
        for turn in range(6):
            own = [torch.full((3,), 7.0)]  # not zero: it is not looked at
            groups[replica].sum(own, nothing=turn % REPLICAS != replica)
            found.append(own[0].tolist())
        return found

    assert in_threads(work) == [[[7.0] * 3] * 6] * REPLICAS
    in_threads(lambda replica: groups[replica].sum([torch.ones(3)], nothing=True))
    for group in groups:
        group.close()


def test_the_last_notice_wakes_who_waits_for_messages(tmp_path):
    groups, ready = shared_groups(), threading.Event()
    with Mesh(KEY, 0, (0, 0)) as mesh:
        mesh.listen(f"ipc://{tmp_path}/mesh")
        mesh.also_wake_by(groups[0].sources)
        groups[0].begin([torch.ones(3)], ready.set)
        for replica in (1, 2):
            assert not ready.is_set()
            groups[replica].begin([torch.ones(3)], lambda: None)
            mesh.receive(30.0)
        assert ready.is_set()
        for group in groups[1:]:
            group.close()
        for _ in range(3):
            mesh.receive(0.01)  # who has ended wakes nobody again
        assert all(source.fileno() < 0 for source in groups[0].sources)
    groups[0].close()


def test_shared_sums_leave_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(segments.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(segments.os, "access", lambda *_: False)
    groups = shared_groups()
    assert not list(tmp_path.iterdir())
    in_threads(lambda replica: groups[replica].sum([torch.ones(3)]))
    assert not list(tmp_path.iterdir())
    in_threads(lambda replica: groups[replica].close())


def test_a_shared_sum_that_only_began_leaves_no_files_either(tmp_path, monkeypatch):
    monkeypatch.setattr(segments.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(segments.os, "access", lambda *_: False)
    groups = shared_groups()
    groups[0].begin([torch.ones(3)], lambda: None)
    found = {path.name.partition(".")[2] for path in tmp_path.iterdir()}
    assert found == {"1", "2"}, "one name for each of the others"
    segments.remove_segments_of(os.getpid())
    assert not list(tmp_path.iterdir())
    for group in groups:
        group.close()


def test_where_memory_cannot_have_several_names_a_file_is_shared(tmp_path, monkeypatch):
    link, refused = os.link, []

    def refuse_once(path, name):
        if refused:
            return link(path, name)
        refused.append(path)
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(segments.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "link", refuse_once)
    groups = shared_groups()
    groups[0].begin([torch.ones(3)], lambda: None)
    assert len(list(tmp_path.iterdir())) == REPLICAS - 1
    assert not refused[0].exists()
    for group in groups:
        group.close()


def test_without_memory_a_file_is_shared(tmp_path, monkeypatch):
    made = segments.Segment.create

    def create(number, size_bytes, folder=None):
        if folder != tmp_path:
            raise OSError(28, "No space left on device")
        return made(number, size_bytes, folder)

    monkeypatch.setattr(segments.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(segments.Segment, "create", create)
    groups = shared_groups()
    tensors = [torch.full((4,), float(replica)) for replica in range(REPLICAS)]
    in_threads(lambda replica: groups[replica].sum([tensors[replica]]))
    assert tensors[0].tolist() == [3.0] * 4
    in_threads(lambda replica: groups[replica].close())
