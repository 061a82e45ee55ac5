"""How a person ends a run."""

from __future__ import annotations


class StoppedError(Exception):
    """The person has asked for the end, and a snapshot was taken if that could be done."""


class Stop:
    """Asked once, a run ends with a snapshot, at the next chance; asked twice, or before the
    training has begun, at once."""

    def __init__(self) -> None:
        self.armed = False
        self.asked = False

    def ask(self, *_: object) -> None:
        """Fit for a signal handler."""
        if not self.armed or self.asked:
            raise KeyboardInterrupt
        self.asked = True
