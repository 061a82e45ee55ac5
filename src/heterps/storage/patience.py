"""Trying again, where files are on other machines: servers go, and come back."""

from __future__ import annotations

import atexit
import errno
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from heterps.errors import HeterPSError, InputError

T = TypeVar("T")

# What another attempt would say as well.
_DEFINITE = (
    FileNotFoundError,
    PermissionError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    TypeError,
    AttributeError,
    AssertionError,
    HeterPSError,
)


# Of clients that need not be installed, by name: who lacks a key will not find one by waiting.
_HOPELESS = frozenset({"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"})

# What clients say of options that they look at when they are asked for something first.
_WRONG_OPTION = re.compile(r"unexpected keyword argument|^Invalid endpoint")

# What the client of `hdfs://` has in the text of an error alone: who may not, and what.
_KINDS = r"(?:AccessControlException|AuthorizationException|\$InvalidToken)"
_REFUSED = re.compile(_KINDS + r"\W+([^\n]*)")


class Ahead(Generic[T]):
    """Work under way in a thread of its own. The end of the process waits for it a moment."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._action = action
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
        _under_way.add(self._thread)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def result(self, timeout_s: float | None = None) -> T:
        """Waits. Raises what the work raised, or TimeoutError."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"no answer in {timeout_s:g} s")
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._action())
        except Exception as error:  # noqa: BLE001 - it reaches whoever asks for the result
            self._error = error
        except BaseException as error:  # noqa: BLE001 - a panic of native code is no Exception
            self._error = OSError(f"{type(error).__name__}: {error}")
        finally:
            _under_way.discard(self._thread)


_under_way: set[threading.Thread] = set()
_ending = threading.Event()
_LAST_PATIENCE_S = 10.0
_SLOWEST_BYTES_PER_S = 1 << 20  # what moves more slowly is begun again


@atexit.register
def _settle() -> None:
    """A thread that comes back from native code into an interpreter that has gone aborts it."""
    _ending.set()
    deadline = time.monotonic() + _LAST_PATIENCE_S
    for thread in list(_under_way):
        thread.join(max(0.0, deadline - time.monotonic()))


@dataclass(frozen=True)
class Patience:
    """``total_s`` is how long to try, ``attempt_s`` how long to wait for one answer (None: for as
    long as it takes); between two attempts lie ``first_s``, twice that, and so on up to ``most_s``.
    """

    total_s: float = 120.0
    attempt_s: float | None = 30.0
    first_s: float = 0.1
    most_s: float = 5.0

    def for_bytes(self, size_bytes: int) -> Patience:
        """With a file that is moved: a large one takes its time."""
        if self.attempt_s is None:
            return self
        more_s = size_bytes / _SLOWEST_BYTES_PER_S
        return replace(self, attempt_s=self.attempt_s + more_s, total_s=self.total_s + more_s)

    def persist(self, action: Callable[[], T], url: str, *, alone: bool = False) -> T:
        """What ``action`` gives, which may be tried several times and has to stand that. An attempt
        that is given up goes on beside the next, and after this has returned; with ``alone`` it is
        waited for until patience ends, and there is no next. Raises OSError at once for what will
        not change, such as a missing file, and InputError with the URL for missing keys, for
        options that a client refuses, and when patience ends.
        """
        began, pause = time.monotonic(), self.first_s
        call = Call(url, self, began)
        _calls.add(call)
        try:
            while True:
                attempt = Ahead(action)
                try:
                    return attempt.result(self._wait_s(began) if alone else self.attempt_s)
                except _DEFINITE as error:
                    _check_options(error, url)
                    raise
                except Exception as error:  # noqa: BLE001 - every client has errors of its own
                    _check_options(error, url)
                    _check_for_hope(error, url)
                    waited = time.monotonic() - began
                    over = waited + pause > self.total_s or _ending.is_set()
                    if over or (alone and not attempt.has_ended):
                        problem = f"cannot be reached, tried for {waited:.0f} s ({reason(error)})"
                        raise InputError(url, f"{problem}: are its servers up?") from None
                    call.problem = reason(error)
                _ending.wait(pause)
                pause = min(2 * pause, self.most_s)
        finally:
            _calls.discard(call)

    def _wait_s(self, began: float) -> float | None:
        """For an attempt that has no next."""
        if self.attempt_s is None:
            return None
        return max(self.attempt_s, self.total_s - (time.monotonic() - began))


@dataclass(eq=False)
class Call:
    """That is being persisted with, since ``began`` on the monotonic clock; ``problem`` is that of
    the last attempt that failed."""

    url: str
    patience: Patience
    began: float
    problem: str | None = None


_calls: set[Call] = set()
_QUICK_S = 1.0


def calls() -> list[Call]:
    """Of this process, under way now."""
    return list(_calls)


def waits_for_servers() -> bool:
    """Whether this process is being patient: for a while, since patience ends."""
    return any(time.monotonic() - call.began > _QUICK_S for call in calls())


def _check_options(error: Exception, url: str) -> None:
    if isinstance(error, TypeError | ValueError) and _WRONG_OPTION.search(str(error)):
        fix = "check the options under storage, and AWS_ENDPOINT_URL"
        raise InputError(url, f"{reason(error)}: {fix}") from None


def _check_for_hope(error: Exception, url: str) -> None:
    """Raises what another attempt would say as well."""
    if type(error).__name__ in _HOPELESS:
        fix = "set them in the environment or ~/.aws of every machine that reads"
        raise InputError(url, f"{reason(error)}: {fix}") from None
    said = str(error).replace("\\n", "\n").replace("\\t", "\t").partition("\n\tat ")[0]
    found = _REFUSED.search(said)
    if found is not None:
        user = os.environ.get("HADOOP_USER_NAME")
        who = f"HADOOP_USER_NAME is '{user}': " if user else ""
        said = found[1].replace('\\"', '"').rstrip('")')
        raise PermissionError(errno.EACCES, f"{who}{said}") from None


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
