"""Whether the head of a Ray cluster is there, as a connection to its port tells at once."""

from __future__ import annotations

import os
import socket
import time
from threading import Event

from heterps.errors import ProcessError

_REACH_S = 1.0
_ATTEMPTS = 3
# Ray waits for its head, in every call, and then ends the process before that can say why.
_RECONNECT, _RECONNECT_S = "RAY_gcs_rpc_server_reconnect_timeout_s", 60.0
_SHARE = 2 / 3


class Head:
    """``lost`` is what to say once it has been silent for most of the time that Ray waits."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._silent_s = _SHARE * float(os.environ.get(_RECONNECT) or _RECONNECT_S)
        self.lost: ProcessError | None = None

    def wait_for(self, closing: Event) -> None:
        """Until it answers, or nobody wants to know. Raises ProcessError when it is lost."""
        began = time.monotonic()
        while not reachable(self._host, self._port) and not closing.is_set():
            if self.lost is None and time.monotonic() - began > self._silent_s:
                address = f"{self._host}:{self._port}"
                problem = f"has lost its head: {address} is silent for {self._silent_s:.0f} s"
                fix = "`heterps resume` goes on in another cluster"
                self.lost = ProcessError("ray", f"{problem}; {fix}")
            if self.lost is not None:
                raise self.lost


def reachable(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    for _ in range(_ATTEMPTS):
        try:
            with socket.create_connection((host, port), timeout=_REACH_S):
                return True
        except OSError:
            time.sleep(_REACH_S / 5)
    return False
