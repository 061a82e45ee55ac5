"""What an actor does on its node, without Ray."""

import signal

import pytest

from heterps.runtime.engines.ray.keeper import LOCK, PREFIX, FolderError, Keeper

HOST = "127.0.0.1"


def claimed(name, folder):
    keeper = Keeper(name, str(folder), HOST)
    keeper.claim()
    return keeper


def test_what_a_process_writes_is_told_once_and_its_code_with_the_last(tmp_path):
    keeper = claimed("one", tmp_path / f"{PREFIX}a")
    keeper.start("heterps.testing.engine_child", ["exit", "3", "text"], {}, False)
    said, seen = b"", keeper.look(0, 30.0)
    while seen.code is None:
        said += seen.output
        seen = keeper.look(len(said), 30.0)
    keeper.leave()
    assert (seen.code, said + seen.output) == (3, b"before\ntext\n")


def test_a_process_that_is_stopped_before_it_was_started_never_starts(tmp_path):
    keeper = claimed("one", tmp_path / f"{PREFIX}a")
    keeper.stop(1.0)
    keeper.start("heterps.testing.engine_child", ["sleep", str(tmp_path / "pid")], {}, False)
    assert keeper.look(0, 0.0).code == -signal.SIGTERM
    assert not (tmp_path / "pid").exists()
    keeper.leave()


def test_a_folder_goes_with_the_last_keeper_that_uses_it(tmp_path):
    folder = tmp_path / f"{PREFIX}a"
    one, two = (claimed(name, folder) for name in ("one", "two"))
    one.leave()
    assert two.read(LOCK) == b""
    two.leave()
    assert not folder.exists()


def test_a_folder_whose_keepers_were_killed_goes_with_the_next_start(tmp_path):
    left, used, next_one = (tmp_path / f"{PREFIX}{letter * 12}" for letter in "abc")
    (left / "logs").mkdir(parents=True)
    (left / LOCK).touch()
    keeper = claimed("one", used)
    assert not left.exists()
    claimed("two", next_one).leave()
    assert used.exists(), "its keeper lives"
    keeper.leave()


@pytest.mark.parametrize("name", ["monday", "0123456789ab"])
def test_a_folder_that_no_keeper_made_stays(tmp_path, name):
    """Such as a run that was started with ``--out``: its ``lock`` is another one."""
    run = tmp_path / f"{PREFIX}{name}"
    (run / "model").mkdir(parents=True)
    (run / "lock").touch()
    claimed("one", tmp_path / f"{PREFIX}{'a' * 12}").leave()
    assert sorted(path.name for path in run.iterdir()) == ["lock", "model"]


def test_a_link_to_a_folder_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / LOCK).touch()
    (tmp_path / f"{PREFIX}{'b' * 12}").symlink_to(other)
    claimed("one", tmp_path / f"{PREFIX}{'a' * 12}").leave()
    assert (other / LOCK).exists()


def test_a_folder_that_cannot_be_made_is_named_with_the_node_and_the_reason(tmp_path):
    (tmp_path / "file").touch()
    keeper = Keeper("one", str(tmp_path / "file" / f"{PREFIX}a"), HOST)
    expected = f"ray.folder '{tmp_path}/file' cannot be used on {HOST}: Not a directory"
    with pytest.raises(FolderError, match=expected):
        keeper.claim()
    keeper.leave()
