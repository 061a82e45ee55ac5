"""What a URL says, before anything is asked of its server."""

from __future__ import annotations

import re
from urllib.parse import urlparse

# Whose clients take a whole URL apart; those of object stores take all that follows the bucket.
BY_HOST = ("hdfs", "webhdfs", "viewfs")
_NATIVE = ("hdfs", "viewfs")
_PASSWORD = re.compile(r"(://[^/:]*):[^/]*@")


def password_problem(url: str) -> str | None:
    """What is wrong with a URL that would carry a password into run folders and messages."""
    if not _PASSWORD.search(url):
        return None
    problem = "holds a password, and would be shown in messages and kept in run folders"
    return f"{problem}: give that by the environment, a profile or ~/.netrc"


def without_password(url: str) -> str:
    return _PASSWORD.sub(r"\1:…@", url)


def path_of(url: str) -> str:
    """All that follows the host, to the letter."""
    return "/" + url.partition("://")[2].partition("/")[2]


def check_path(protocol: str, path: str) -> None:
    """Raises ValueError for a path that the client of HDFS would take for another: it parses paths
    as URLs, where ``#``, ``?`` and in the last name ``;`` end them.
    """
    if protocol in _NATIVE and (";" in path or urlparse(path).path != path):
        raise misread(path)


def misread(path: str) -> ValueError:
    advice = "use none of #, ; and ? in names, and * for ? in patterns"
    return ValueError(f"its client takes {path!r} for another: {advice}")
