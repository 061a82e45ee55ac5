"""Snapshots of servers that do not see the client's disk."""

from pathlib import Path

import numpy as np
import pytest

from heterps.errors import HeterPSError, InputError
from heterps.ps.courier import Courier
from heterps.ps.protocol import DenseSpec, TableSpec
from heterps.ps.scratch import HERE, Scratch
from heterps.testing.servers import serving

SPEC = TableSpec(dim=4, rule="adam", lr=0.1, seed=1)
IDS = np.arange(3000)
ONES = np.ones((2, 3), np.float32)
OURS = Path("/proc/self/cwd")  # a folder of each process's own


def push(table, seed):
    table.push(IDS, np.random.default_rng(seed).normal(size=(len(IDS), 4)).astype(np.float32))


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Tells a client from servers by a working folder that they do not have."""
    (tmp_path / "client").mkdir()

    def found(client):
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path / "client")
            client.look_for_disk(OURS)
        assert not client.shares_disk
        return client

    return found


@pytest.mark.slow
def test_tables_tensors_and_deltas_come_and_go_through_the_client(part, tmp_path):
    with serving(tmp_path, 2, tcp=True) as client:
        part(client)
        table = client.create_table("t", SPEC)
        tensor = client.create_tensor("w", ONES, DenseSpec(rule="sgd", lr=0.1))
        push(table, 0)
        client.save(tmp_path / "a" / "tables")
        push(table, 1)
        tensor.push(ONES)
        client.capture(delta_of=tmp_path / "a" / "tables")
        client.save(tmp_path / "b" / "tables", delta_of=tmp_path / "a" / "tables")
        expected = table.pull(IDS).tobytes()
    assert list((tmp_path / "scratch").glob("*")) == []
    with serving(tmp_path, 3, tcp=True) as client:
        part(client)
        table = client.create_table("t", SPEC)
        tensor = client.create_tensor("w", 0 * ONES, DenseSpec(rule="sgd", lr=0.1))
        client.load(tmp_path / "b" / "tables")
        assert table.pull(IDS).tobytes() == expected
        assert np.allclose(tensor.pull(), 0.9)
    assert list((tmp_path / "scratch").glob("*")) == []


def test_servers_that_see_the_disk_are_found_to_do_so(tmp_path):
    with serving(tmp_path) as client:
        client.look_for_disk(tmp_path)
        assert client.shares_disk
        with pytest.raises(HeterPSError, match="a client writes only into the folder of a server"):
            client.everywhere("put", {"path": str(tmp_path / "x"), "offset": 0}).result()
    assert sorted(tmp_path.glob(".seen*")) == []


@pytest.mark.parametrize("seen", ["run", "snapshots"])
def test_each_place_comes_and_goes_as_servers_see_it(seen, tmp_path, monkeypatch):
    ours, theirs = OURS / "a", tmp_path / "shared"
    run, snapshots = (theirs, ours) if seen == "run" else (ours, theirs)
    brought, bring = [], Courier.bring

    def noted(courier, outgoing, written, folder):
        brought.append(folder.parents[1])
        bring(courier, outgoing, written, folder)

    with serving(tmp_path, 2, tcp=True) as client, monkeypatch.context() as patch:
        (tmp_path / "client" / "a").mkdir(parents=True)
        theirs.mkdir()
        patch.chdir(tmp_path / "client")
        patch.setattr(Courier, "bring", noted)
        client.look_for_disk(run, snapshots)
        assert client.shares_disk == (seen == "run")
        table = client.create_table("t", SPEC)
        push(table, 0)
        expected = table.pull(IDS).tobytes()
        for place in (run, snapshots):
            client.save(place / "step" / "tables")
            push(table, 1)
            client.load(place / "step" / "tables")
            assert table.pull(IDS).tobytes() == expected
    assert brought == [ours]


def test_a_folder_that_cannot_be_written_to_is_not_asked_for(tmp_path):
    with serving(tmp_path) as client:
        client.look_for_disk(tmp_path / "none")
        assert not client.shares_disk


@pytest.mark.parametrize("path", ["", "..", "../x", "a/../../x", "/etc/passwd"])
def test_a_server_is_not_led_out_of_its_folder(path, tmp_path):
    with pytest.raises(InputError, match="no path in the folder of a server"):
        Scratch(tmp_path).path(f"{HERE}{path}")
