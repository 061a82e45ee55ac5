import stat

import pytest
import zmq

from heterps.errors import InputError
from heterps.wire.keys import create_key, curve_pair, read_key, subkey


def test_a_key_is_random_and_only_its_owner_reads_it(tmp_path):
    key = create_key(tmp_path)
    assert len(key) == 32
    assert read_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(tmp_path):
    create_key(tmp_path)
    with pytest.raises(InputError, match="has a key already"):
        create_key(tmp_path)


def test_a_missing_or_short_key_is_named(tmp_path):
    with pytest.raises(InputError, match="key: no key of a run"):
        read_key(tmp_path)
    (tmp_path / "key").write_bytes(b"short")
    with pytest.raises(InputError, match="32 bytes, this file 5"):
        read_key(tmp_path)


def test_subkeys_differ_by_key_purpose_and_context():
    keys = {
        subkey(bytes(32), "a"),
        subkey(bytes(31) + b"\1", "a"),
        subkey(bytes(32), "b"),
        subkey(bytes(32), "a", b"x"),
        subkey(bytes(32), "ax"),
    }
    assert len(keys) == 5


def test_curve_pairs_are_derived_and_fit():
    pair = curve_pair(bytes(32), "server")
    assert pair == curve_pair(bytes(32), "server") != curve_pair(bytes(32), "client")
    assert zmq.curve_public(pair.secret) == pair.public
