import fsspec
import pytest

from heterps.data.writing import aside
from heterps.errors import InputError
from heterps.storage.publish import is_there, to_url


def fail_on_a_full_disk(target):
    with aside(target) as partial:
        partial.write_text("two")
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("start", ["", "file://"])
def test_a_file_is_there_whole_or_as_it_was(tmp_path, start):
    target = tmp_path / "new" / "out#1?.csv"
    with aside(f"{start}{target}") as partial:
        partial.write_text("one")
        assert not target.exists()
    with pytest.raises(InputError, match="cannot be written"):
        fail_on_a_full_disk(f"{start}{target}")
    assert target.read_text() == "one"
    assert is_there(f"{start}{target}")
    assert list(target.parent.iterdir()) == [target]


def test_a_name_at_a_url_may_begin_with_what_ends_paths_elsewhere():
    with to_url("memory://out/#1.csv") as local:
        local.write_text("one")
    assert fsspec.filesystem("memory").cat_file("/out/#1.csv") == b"one"
