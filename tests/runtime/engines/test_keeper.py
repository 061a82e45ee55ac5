"""What an actor does on its node, without Ray."""

import signal

from heterps.runtime.engines.ray.keeper import PREFIX, Keeper

HOST = "127.0.0.1"


def test_what_a_process_writes_is_told_once_and_its_code_with_the_last(tmp_path):
    keeper = Keeper("one", str(tmp_path / f"{PREFIX}a"), HOST)
    keeper.start("heterps.testing.engine_child", ["exit", "3", "text"], {}, False)
    said, seen = b"", keeper.look(0, 30.0)
    while seen.code is None:
        said += seen.output
        seen = keeper.look(len(said), 30.0)
    keeper.leave()
    assert (seen.code, said + seen.output) == (3, b"before\ntext\n")


def test_a_process_that_is_stopped_before_it_was_started_never_starts(tmp_path):
    keeper = Keeper("one", str(tmp_path / f"{PREFIX}a"), HOST)
    keeper.stop(1.0)
    keeper.start("heterps.testing.engine_child", ["sleep", str(tmp_path / "pid")], {}, False)
    assert keeper.look(0, 0.0).code == -signal.SIGTERM
    assert not (tmp_path / "pid").exists()
    keeper.leave()


def test_a_folder_goes_with_the_last_keeper_that_uses_it(tmp_path):
    folder = tmp_path / f"{PREFIX}a"
    one, two = (Keeper(name, str(folder), HOST) for name in ("one", "two"))
    one.leave()
    assert two.read("lock") == b""
    two.leave()
    assert not folder.exists()


def test_a_folder_whose_keepers_were_killed_goes_with_the_next_start(tmp_path):
    left, used = tmp_path / f"{PREFIX}a", tmp_path / f"{PREFIX}b"
    left.mkdir()
    (left / "lock").touch()
    keeper = Keeper("one", str(used), HOST)
    assert not left.exists()
    Keeper("two", str(tmp_path / f"{PREFIX}c"), HOST).leave()
    assert used.exists(), "its keeper lives"
    keeper.leave()
