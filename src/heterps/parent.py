"""The process that started this one: the secret that it handed over, its word to end, its own end.

SIGTERM comes from it once it has closed its end of our standard input, and from the kernel when it
has gone: then this process ends. It comes from elsewhere when a service manager tells all processes
of a run at once: the parent has heard it too, and needs this process for a snapshot before it says
so itself. SIGINT and SIGHUP count alike.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_INPUT = 0
_LAST_PATIENCE_S = 10.0
# From a signal from elsewhere on. Slurm and Kubernetes leave 30 s, systemd 90 s, and spot machines
# two minutes until they kill: a snapshot may take as long, and whoever has told this process alone
# still sees it end.
_PATIENCE_S = 120.0
_LOOK_EVERY_S = 0.1

_GONE = "the process that started this one has gone"
_secret = b""


def handed_secret() -> bytes:
    """What this process was given when it was started; nothing, if it was started otherwise."""
    return _secret


def keep_secret(secret: bytes) -> None:
    """For whoever starts processes in another way."""
    global _secret
    _secret = secret


def read_secret(count: int) -> None:
    """From the input; exits when the parent has gone before."""
    found = b""
    while len(found) < count:
        more = os.read(_INPUT, count - len(found))
        if not more:
            raise SystemExit(_GONE)
        found += more
    keep_secret(found)


_at_end: list[Callable[[], object]] = []


def at_end(do: Callable[[], object]) -> None:
    """Has it done before this process ends because it was told to, because its parent has gone, or
    by itself, as when others miss the parent first: what it owns beside memory, where nobody may be
    left to clear up after it. It runs in a handler of signals, between any two steps of the main
    thread: it must wait for no lock."""
    own = os.getpid()
    _at_end.append(do)
    atexit.register(lambda: do() if os.getpid() == own else None)  # not in what was forked from it


def when_told(end: Callable[[], object]) -> None:
    """Has it done, once, when this process is to end: at a signal of the parent, or of anyone where
    no parent is watched. In a handler of signals, as what `at_end` gets."""
    global _end, _is_ending
    _end, _is_ending = end, False
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` leaves SIGHUP
            signal.signal(number, _hear)


def end_with(parent: int, *, by_kernel: bool) -> None:
    """From now on, this process ends as its parent says, or when that has gone, which the kernel is
    asked to tell too."""
    global _watch
    _watch = _Watch(parent)
    when_told(_end_group)
    if by_kernel:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(_GONE)
    threading.Thread(target=_watch.follow, name="parent", daemon=True).start()


class _Watch:
    """Of the parent, by the input that it holds the other end of."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._told = os.eventfd(0)  # holds something once a signal has come
        self._waited = False

    def says_end(self) -> bool:
        """Whether a signal that has just come is the parent's, or about it. For one that was judged
        a moment too early, as both become true while the parent goes, it is asked for again."""
        os.eventfd_write(self._told, 1)
        look = select.poll()
        look.register(_INPUT, 0)
        return self._waited or self._has_gone() or bool(look.poll(0))

    def follow(self) -> None:
        """To the end of this process."""
        look = select.poll()
        look.register(_INPUT, 0)
        look.register(self._told, select.POLLIN)
        seen = {source for source, _ in look.poll()}
        if _INPUT not in seen:
            look.unregister(self._told)
            look.poll(1000 * _PATIENCE_S)
            self._waited = True
        if self._told in seen:
            os.kill(os.getpid(), signal.SIGTERM)
        while not self._has_gone():  # it sees to our end itself
            time.sleep(_LOOK_EVERY_S)
        _end_in_time()

    def _has_gone(self) -> bool:
        return os.getppid() != self._parent


_watch: _Watch | None = None
_is_ending = False


def _hear(*_: object) -> None:
    global _is_ending
    if (_watch is None or _watch.says_end()) and not _is_ending:
        _is_ending = True
        _end()


def _end_group() -> None:
    """For modules that have nothing of their own to do: what they have started ends with them."""
    try:
        _do_last_things()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.killpg(0, signal.SIGTERM)


_end: Callable[[], object] = _end_group


def _end_in_time() -> None:
    """Whatever holds this process up, nobody is left to wait for it."""
    os.killpg(0, signal.SIGTERM)
    time.sleep(_LAST_PATIENCE_S)
    try:
        _do_last_things()
    finally:
        os.killpg(0, signal.SIGKILL)


def _do_last_things() -> None:
    for do in _at_end:
        do()
