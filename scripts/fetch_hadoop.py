"""Gather the jars of a real HDFS for the tests: ``fetch_hadoop.py FOLDER``.

Apache Hadoop 2.7.3 is inside the source archive of pyspark 2.4.8 on the Python package index, all
but Jersey 1, which Debian has. The archive passes through without being kept; nothing counts before
its checksum is right.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import ssl
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ARCHIVE = "pyspark-2.4.8.tar.gz"
SHA256 = "3a19b71b8dc8dd91ebc943604a05e1ab01bce052456d42937035632d852d78dc"
JARS = [
    "hadoop-hdfs-2.7.3",
    "hadoop-common-2.7.3",
    "hadoop-auth-2.7.3",
    "jackson-mapper-asl-1.9.13",
    "jackson-core-asl-1.9.13",
    "guava-14.0.1",
    "netty-all-4.1.47.Final",
    "jetty-6.1.26",
    "jetty-util-6.1.26",
    "protobuf-java-2.5.0",
    "commons-collections-3.2.2",
    "commons-configuration-1.6",
    "commons-lang-2.6",
    "commons-cli-1.2",
    "commons-codec-1.10",
    "commons-io-2.4",
    "commons-logging-1.1.3",
    "javax.servlet-api-3.1.0",
    "log4j-1.2.17",
    "slf4j-api-1.7.16",
    "slf4j-log4j12-1.7.16",
    "htrace-core-3.1.0-incubating",
    "httpclient-4.5.6",
    "httpcore-4.4.10",
    "jaxb-api-2.2.2",
    "activation-1.1.1",
]
DEBIAN = ("jersey1-core", "jersey1-server", "jersey1-servlet", "jsr311-api")
DEBIAN_JARS = Path("/usr/share/java")
_ATTEMPTS, _PAUSE_S = 3, 5.0


class _Hashed(io.RawIOBase):
    """Passes a stream on and hashes it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self.sha256.update(block)
        return block


def opened(url: str) -> IO[bytes]:
    """With the certificates that pip trusts."""
    trusted = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    stream: IO[bytes] = urllib.request.urlopen(url, timeout=60, context=trusted)
    return stream


def archive_url() -> str:
    """Where the index that pip uses has the archive."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    page = f"{index}/pyspark/"
    with opened(page) as answer:
        found = re.search(rf'href="([^"]*{re.escape(ARCHIVE)})[#"]', answer.read().decode())
    if found is None:
        raise SystemExit(f"error: {page} names no {ARCHIVE}")
    return urllib.parse.urljoin(page, found[1])


def unpack(stream: IO[bytes], folder: Path) -> None:
    """The jars of an archive. Raises SystemExit for another archive than is meant."""
    hashed = _Hashed(stream)
    wanted = {f"{jar}.jar" for jar in JARS}
    with tarfile.open(fileobj=hashed, mode="r|gz") as archive:
        for name, content in _jars(archive, wanted):
            with (folder / name).open("wb") as file:
                shutil.copyfileobj(content, file)
    while hashed.read(1 << 20):  # what follows the end of the archive
        pass
    if hashed.sha256.hexdigest() != SHA256:
        raise SystemExit(f"error: {ARCHIVE} has sha256 {hashed.sha256.hexdigest()}, not {SHA256}")
    missing = sorted(wanted - {path.name for path in folder.iterdir()})
    if missing:
        raise SystemExit(f"error: {ARCHIVE} holds no {', '.join(missing)}")


def _jars(archive: tarfile.TarFile, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    for member in archive:
        name = Path(member.name).name
        content = archive.extractfile(member) if name in wanted and member.isfile() else None
        if content is not None:
            yield name, content


def download(folder: Path) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            with opened(archive_url()) as answer:
                return unpack(answer, folder)
        except (OSError, tarfile.TarError) as error:
            if attempt == _ATTEMPTS - 1:
                raise SystemExit(f"error: {ARCHIVE} cannot be fetched ({error})") from None
            time.sleep(_PAUSE_S)
    return None


def main(target: Path) -> None:
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        download(partial)
        for jar in DEBIAN:
            shutil.copy(DEBIAN_JARS / f"{jar}.jar", partial)
        for app in ("hdfs", "datanode", "static"):  # which NameNode and DataNode look for
            page = partial / "webapps" / app / "WEB-INF" / "web.xml"
            page.parent.mkdir(parents=True)
            page.write_text("<web-app/>\n")
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
