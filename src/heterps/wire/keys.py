"""The run's key, and the keys derived from it. The run's key itself is never sent."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85

from heterps.errors import InputError

KEY_BYTES = 32
KEY_FILE = "key"


class CurvePair(NamedTuple):
    """A CURVE key pair in Z85."""

    public: bytes
    secret: bytes


def create_key(folder: Path) -> bytes:
    """A new random key in the file ``key`` of a run folder, readable by its owner alone.

    Raises InputError when the folder has one already.
    """
    path = folder / KEY_FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(str(path), "the run has a key already") from None
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(handle, "wb") as file:
        file.write(key)
    return key


def read_key(folder: Path) -> bytes:
    """The key of a run folder; raises InputError when there is none."""
    path = folder / KEY_FILE
    try:
        key = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"no key of a run: {error.strerror}") from None
    if len(key) != KEY_BYTES:
        raise InputError(str(path), f"a run's key has {KEY_BYTES} bytes, this file {len(key)}")
    return key


def subkey(key: bytes, purpose: str, context: bytes = b"") -> bytes:
    """A key for one purpose; keys of different purposes or contexts tell nothing of each other."""
    name = purpose.encode()
    data = len(name).to_bytes(2, "big") + name + context
    return hashlib.blake2b(data, key=key, digest_size=KEY_BYTES, person=b"heterps.subkey").digest()


def curve_pair(key: bytes, role: str) -> CurvePair:
    """The CURVE key pair of a role, which every process of the run can derive."""
    secret = z85.encode(subkey(key, f"curve {role}"))
    return CurvePair(zmq.curve_public(secret), secret)
