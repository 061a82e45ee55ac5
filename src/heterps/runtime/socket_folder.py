"""Where the unix sockets of a run are."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from heterps.wire.sockets import MAX_IPC_PATH

_NAME = "sockets"
_ASIDE = "heterps-"
_LONGEST = 32  # of the names in it


class SocketFolder:
    """In the run's folder; where paths there are too long it is a link to a folder that is not.
    What a coordinator that was killed has left there goes first.
    """

    def __init__(self, run: Path) -> None:
        self._name = run.resolve() / _NAME
        self.path = self._name

    def __enter__(self) -> Path:
        self._remove()
        if len(str(self._name)) + _LONGEST < MAX_IPC_PATH:
            self._name.mkdir()
        else:
            self.path = Path(tempfile.mkdtemp(prefix=_ASIDE))
            self._name.symlink_to(self.path)
        return self.path

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        if not self._name.is_symlink():
            shutil.rmtree(self._name, ignore_errors=True)
            return
        aside = self._name.readlink()
        if aside.name.startswith(_ASIDE) and aside.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(aside, ignore_errors=True)
        self._name.unlink()
