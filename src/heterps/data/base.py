"""What every format gives: a file as row groups that can be read one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import pyarrow as pa

from heterps.data.source import SourceFile


class GroupedFile(ABC):
    """A file as a list of row groups.

    The constructor reads what it takes to know the schema and the sizes, which may be all of the
    file: ``on_read`` is called with every piece. It raises InputError with the file's name where
    that fails. Reading is safe from several threads at once.
    """

    schema: pa.Schema
    sizes: Sequence[int]  # rows in each row group

    def __init__(self, file: SourceFile, on_read: Callable[[], None] = lambda: None) -> None:
        self.file = file

    @abstractmethod
    def read(self, index: int, columns: Sequence[str]) -> pa.Table:
        """The named columns of a row group. Raises InputError with the file's name."""

    def announce(self, index: int, columns: Sequence[str]) -> int:
        """That a row group will be read soon, so that fetching may begin: the bytes in memory that
        this takes until it is read or forgotten, 0 if nothing is done.
        """
        return 0

    def forget(self, index: int) -> None:
        """That a row group which was announced will not be read soon."""
        return
