"""Replicas in threads: each has its own connections."""

import threading

import pytest
import torch
import torch.distributed as dist

from heterps.errors import HeterPSError, WorkerLostError
from heterps.runtime.collective import Alone, ChannelGroup, GlooGroup

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


@pytest.fixture(params=["gloo", "channel", "encrypted"])
def groups(request, tmp_path):
    if request.param == "gloo":
        return gloo_groups()
    return channel_groups(tmp_path, request.param == "encrypted")


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


def test_a_sum_that_was_begun_is_there_when_all_have_begun_it():
    groups, ready = gloo_groups(), threading.Event()
    tensors = [torch.full((3,), float(replica)) for replica in range(REPLICAS)]
    finish = groups[0].begin([tensors[0]], ready.set)
    assert groups[0].beside
    assert not ready.is_set()
    tensors[0] += 7  # what was given is on its way
    others = [groups[n].begin([tensors[n]], lambda: None) for n in range(1, REPLICAS)]
    assert ready.wait(30)
    for each in (finish, *others):
        each()
    assert all(torch.equal(tensor, torch.full((3,), 3.0)) for tensor in tensors)


def test_channels_add_in_the_order_of_replicas(tmp_path):
    groups = channel_groups(tmp_path, encrypt=False)
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


def test_one_replica_is_its_own_sum():
    tensor = torch.ones(3)
    Alone().sum([tensor])
    assert torch.equal(tensor, torch.ones(3))
