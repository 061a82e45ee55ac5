import pytest

from heterps.errors import InputError
from heterps.job.data import DataSpec

DATA = {"train": "s3://b/d", "dense": ["I1"]}


def test_options_of_file_systems_and_a_cache_are_read():
    storage = {"s3": {"endpoint_url": "http://h:1", "client_kwargs": {"region_name": "x"}}}
    spec = DataSpec.parse({**DATA, "storage": storage, "cache": {"path": "c"}})
    assert spec.storage == storage
    assert (spec.cache.path, spec.cache.gib) == ("c", 10)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"secret": "x"}, "storage.s3.secret"),
        ({"key": "x"}, "storage.s3.key"),
        ({"client_kwargs": {"aws_session_token": "x"}}, "storage.s3.client_kwargs.aws_session_t"),
    ],
)
def test_secrets_are_refused_without_showing_them(options: dict, where: str):
    with pytest.raises(InputError, match=f"^{where}.*: is a secret, .* by the environment"):
        DataSpec.parse({**DATA, "storage": {"s3": options}})


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"train": "webhdfs://me:hunter2@knox:8443/d"}, "train"),
        ({"train": ["a", "s3://me:hunter2@b/d"]}, r"train\[1\]"),
        ({"validation": "webhdfs://me:hunter2@knox/d"}, "validation"),
    ],
)
def test_a_password_in_a_url_is_refused_without_showing_it(fields: dict, where: str):
    with pytest.raises(InputError, match=f"^{where}: holds a password, .*netrc$") as caught:
        DataSpec.parse({**DATA, **fields})
    assert "hunter2" not in str(caught.value)


def test_a_user_a_port_and_a_colon_in_a_path_are_no_password():
    urls = ["webhdfs://me@knox:8443/d", "hdfs://h:8020/a:b@c", "/data/a:b@c"]
    assert DataSpec.parse({**DATA, "train": urls}).train == tuple(urls)


@pytest.mark.parametrize("gib", [0, -1, "much"])
def test_a_cache_of_nothing_is_refused(gib: object):
    with pytest.raises(InputError, match=r"^cache\.gib: expected"):
        DataSpec.parse({**DATA, "cache": {"path": "c", "gib": gib}})
