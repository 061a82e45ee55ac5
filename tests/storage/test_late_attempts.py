"""Attempts that stall, are given up, and wake up later."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from heterps.errors import InputError
from heterps.storage.access import Storage
from heterps.storage.patience import Patience
from heterps.storage.places import Url

QUICK = Storage(patience=Patience(total_s=1.0, attempt_s=0.1, first_s=0.01))


@dataclass
class Stall:
    """The first call of ``method`` with a path that ends in ``name`` waits until ``release``."""

    method: str = ""
    name: str = ""
    threads: list[threading.Thread] = field(default_factory=list)
    _go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, method: str, path: str) -> None:
        if method == self.method and path.endswith(self.name) and not self.threads:
            self.threads.append(threading.current_thread())
            self._go.wait()

    def release(self) -> None:
        self._go.set()
        for thread in self.threads:
            thread.join()


class StallingStore(MemoryFileSystem):
    """Renames as WebHDFS does: a name that is taken stays, and nothing is said."""

    protocol = "stalling"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    stall = Stall()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("stalling://h", "")))

    def info(self, path: str, **options: Any) -> Any:
        self.stall("info", path)
        return super().info(path, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        self.stall(f"open {mode}", path)
        return super().open(path, mode, **options)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        self.stall("mv", path1)
        if not self.exists(path2):
            super().mv(path1, path2)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Url:
    fsspec.register_implementation("stalling", StallingStore, clobber=True)
    monkeypatch.setattr("heterps.storage.publish.BY_HOST", ("stalling",))
    monkeypatch.setattr("heterps.storage.patience._SLOWEST_BYTES_PER_S", 1 << 40)
    monkeypatch.setattr(StallingStore, "store", {})
    return Url("stalling://h/d", QUICK)


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stall]:
    stall = Stall()
    monkeypatch.setattr(StallingStore, "stall", stall)
    yield stall
    stall.release()


def test_a_rename_that_stalls_and_wakes_up_removes_nothing(folder: Url, stall: Stall):
    (folder / "a").write_text("old")
    stall.method, stall.name = "info", "/a"
    with pytest.raises(InputError, match=r"^stalling://h/d/a: cannot be reached, tried for 1 s"):
        (folder / "a").write_text("new")
    assert (folder / "a").read_text() == "old"
    stall.release()
    assert folder.files() == {"a": 3}
    assert (folder / "a").read_text() == "new", "it was all there"


def test_a_rename_that_is_slow_is_waited_for(folder: Url, stall: Stall):
    stall.method, stall.name = "info", "/a"
    later = threading.Timer(0.3, stall.release)
    later.start()
    (folder / "a").write_text("new")
    later.join()
    assert folder.files() == {"a": 3}


def test_what_is_uploaded_late_is_not_what_was_published(folder: Url, stall: Stall):
    stall.method = "open wb"
    (folder / "a").write_text("new")
    stall.release()
    assert folder.files() == {"a": 3}
    assert (folder / "a").read_text() == "new"


def test_a_copy_that_is_uploaded_late_takes_the_place_of_no_later_one(
    folder: Url, stall: Stall, tmp_path: Path
):
    stall.method = "open wb"
    for text in ("one", "another"):
        (tmp_path / text).write_text(text)
        (folder / "a").put(tmp_path / text)
    stall.release()
    assert folder.files() == {"a": 7}
    assert (folder / "a").read_text() == "another"


def test_what_has_gone_before_it_was_renamed_is_an_error(
    folder: Url, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(StallingStore, "mv", lambda self, path1, path2, **_: self.rm(path1))
    with pytest.raises(InputError, match=r"^stalling://h/d/a: cannot be written \(it is gone"):
        (folder / "a").write_text("new")


def test_a_name_that_is_taken_is_replaced_where_renaming_cannot(folder: Url):
    for text in ("one", "another"):
        (folder / "a").write_text(text)
        assert (folder / "a").read_text() == text
    assert list(folder.files()) == ["a"]


def test_what_is_all_there_is_stays_when_a_rename_fails(
    folder: Url, monkeypatch: pytest.MonkeyPatch
):
    (folder / "a").write_text("old")

    def refused(self: StallingStore, path1: str, path2: str, **options: Any) -> None:
        if not self.exists(path2):
            raise RuntimeError("no lease")

    monkeypatch.setattr(StallingStore, "mv", refused)
    with pytest.raises(InputError, match="no lease"):
        (folder / "a").write_text("new")
    (left,) = folder.files()
    assert left.startswith(".a.partial-")
    assert (folder / left).read_text() == "new"


def test_a_copy_is_not_written_to_by_an_attempt_that_wakes_up(folder: Url, stall: Stall):
    for name in "ab":
        (folder / name).write_text(name * 1000)
    stall.method, stall.name = "open rb", "/a"
    with (folder / "a").fetched() as copy:
        assert copy.read_bytes() == b"a" * 1000
    with (folder / "b").fetched() as copy:
        stall.release()
        assert copy.read_bytes() == b"b" * 1000


def test_copies_leave_no_file_open(folder: Url, stall: Stall):
    (folder / "a").write_text("a")
    before = len(list(Path("/proc/self/fd").iterdir()))
    stall.method = "open rb"
    with (folder / "a").fetched():
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
