import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heterps.data.hashing import hash_integers, hash_texts, missing_id, salt_of

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def text_by_hand(slot: str, text: bytes) -> int:
    h = mix(salt_of(slot) ^ 0x5851F42D4C957F2D ^ len(text))
    for k in range(0, len(text), 8):
        h = mix(h ^ int.from_bytes(text[k : k + 8], "little"))
    return h


def integer_ids(slot: str, values: list[int]) -> list[int]:
    hashed = np.array(values, np.int64)
    hash_integers(slot, hashed)
    return hashed.view(np.uint64).tolist()


def ids_of(slot: str, texts: list[bytes]) -> list[int]:
    data = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.cumsum([0, *map(len, texts)])
    return hash_texts(slot, data, offsets).view(np.uint64).tolist()


@settings(deadline=None)
@given(texts=st.lists(st.binary(max_size=40), max_size=30))
def test_texts_hash_as_the_formula_says(texts: list[bytes]):
    assert ids_of("C1", texts) == [text_by_hand("C1", text) for text in texts]


@settings(deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_integers_hash_as_the_formula_says(values: list[int]):
    assert integer_ids("C1", values) == [mix((value & MASK) ^ salt_of("C1")) for value in values]


def test_ids_are_fixed_for_all_time():
    salt = hashlib.blake2b(b"C1", digest_size=8, person=b"heterps slot").digest()
    assert salt_of("C1") == int.from_bytes(salt, "little")
    assert integer_ids("C1", [7]) == [FIXED[0]]
    assert ids_of("C1", [b"68fd1e64"]) == [FIXED[1]]
    assert missing_id("C1") == FIXED[2]


def test_the_same_value_in_two_slots_gives_two_ids():
    values = list(range(1000))
    assert len({*integer_ids("C1", values), *integer_ids("C2", values)}) == 2000
    assert ids_of("C1", [b"a"]) != ids_of("C2", [b"a"])
    assert missing_id("C1") != missing_id("C2")


def test_texts_that_differ_in_trailing_zeros_are_told_apart():
    assert len(set(ids_of("C1", [b"", b"\0", b"\0" * 8, b"\0" * 9]))) == 4


FIXED = (6968194373029547918, 273979946125010227, -7231297995700991098)
