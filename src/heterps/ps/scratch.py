"""The server's side of snapshots without a shared disk: it writes into a folder of its own, from
which the client fetches the files, and loads from one that the client has filled."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import numpy as np

from heterps.errors import InputError, SnapshotError
from heterps.ps.requests import Answer, Request
from heterps.wire.frames import as_buffer

HERE = "here:"  # begins a path that is in the server's own folder
PIECE_BYTES = 4 << 20
_NAME = "scratch"


class Scratch:
    """``folder`` is one that the server may write to; without one there is no scratch."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder / _NAME

    def path(self, given: str) -> Path:
        """A path as a request names it, absolute or in the server's own folder."""
        if not given.startswith(HERE):
            return Path(given)
        parts = PurePosixPath(given.removeprefix(HERE)).parts
        if self._folder is None or not parts or ".." in parts or parts[0].startswith("/"):
            raise InputError("path", f"'{given}' is no path in the folder of a server")
        return self._folder.joinpath(*parts)

    def made(self, given: str) -> Path:
        """The same for a folder that is to be written to."""
        path = self.path(given)
        if given.startswith(HERE):
            path.mkdir(parents=True, exist_ok=True)
        return path

    def handle(self, request: Request) -> Answer:
        path = self.path(request.text("path"))
        try:
            match request.verb:
                case "sees":
                    return Answer({"sees": path.is_file()})
                case "fetch":
                    return self._read(path, request.integer("offset"))
                case "put":
                    self._write(path, request)
                case "forget":
                    self.forget(request.text("path"))
        except OSError as error:
            raise SnapshotError(path, f"{error.strerror or error}") from None
        return Answer()

    def forget(self, given: str) -> None:
        """What the client has fetched, or need not be loaded again."""
        if given.startswith(HERE):
            shutil.rmtree(self.path(given), ignore_errors=True)

    def _read(self, path: Path, offset: int) -> Answer:
        with path.open("rb") as file:
            file.seek(offset)
            piece = np.frombuffer(file.read(PIECE_BYTES), np.uint8)
        return Answer(buffers=(as_buffer(piece),))

    def _write(self, path: Path, request: Request) -> None:
        if not request.text("path").startswith(HERE):
            raise InputError("path", "a client writes only into the folder of a server")
        path.parent.mkdir(parents=True, exist_ok=True)
        offset = request.integer("offset")
        with path.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(request.octets().tobytes())
