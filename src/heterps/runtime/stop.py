"""How a person, or what runs the machine for one, ends a run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

_ECHO_S = 1.0


class StoppedError(Exception):
    """The person has asked for the end, and a snapshot was taken if that could be done."""


class Stop:
    """Asked once, a run ends with a snapshot, at the next chance; asked twice, or before the
    training has begun, at once. ``signal`` is the first that asked."""

    def __init__(self) -> None:
        self.armed = False
        self.asked = False
        self.signal = signal.SIGINT
        self._heard_at: float | None = None

    def ask(self, number: int = signal.SIGINT, *_: object) -> None:
        """Fit for a signal handler."""
        now = time.monotonic()
        if self._heard_at is None:
            self._heard_at, self.signal = now, signal.Signals(number)
        elif number != signal.SIGINT and now < self._heard_at + _ECHO_S:
            return  # `timeout` sends SIGTERM twice, and a terminal that closes SIGHUP
        if not self.armed or self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """To Ctrl-C, SIGTERM and SIGHUP, but for a SIGHUP that `nohup` keeps away."""
        wanted = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            wanted.append(signal.SIGHUP)
        before = {number: signal.signal(number, self.ask) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
