"""Servers of others that tests run for real."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Service(ABC):
    """``start`` it, or enter it."""

    @abstractmethod
    def start(self) -> None:
        """Until it can be used."""

    @abstractmethod
    def close(self) -> None:
        """Also what has only half started."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
