from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

class Problem:
    def __init__(
        self,
        compute: NDArray[np.float64],
        alpha: NDArray[np.float64],
        comm: NDArray[np.float64],
        beta: NDArray[np.float64],
        sync: NDArray[np.float64],
        transfer: NDArray[np.float64],
        transfer_beta: NDArray[np.float64],
        reach: NDArray[np.int32],
        runs: NDArray[np.uint8],
        price: NDArray[np.float64],
        limit: NDArray[np.int64],
        overhead: float,
        max_period: float,
    ) -> None: ...
    def provision(
        self,
        assignments: NDArray[np.int32],
        status: NDArray[np.int32],
        cost: NDArray[np.float64],
        period: NDArray[np.float64],
        violation: NDArray[np.float64],
        units: NDArray[np.int64],
        fastest: bool = False,
        worth: float = ...,
    ) -> None: ...

class Search:
    def __init__(self, problem: Problem) -> None: ...
    def offer(self, problem: Problem, assignments: NDArray[np.int32]) -> bool: ...
    def run(self, work: int, stop: Callable[[], bool] | None = None) -> bool: ...
    def shortest_period(
        self, precision: float = 0.0, label_cap: int = 100_000
    ) -> tuple[float, list[int]]: ...
    def outlook(self) -> tuple[list[float], list[float], list[float]]: ...
    @property
    def found(self) -> bool: ...
    @property
    def cost(self) -> float: ...
    @property
    def lower_bound(self) -> float: ...
    @property
    def assignment(self) -> list[int]: ...
    @property
    def intervals(self) -> int: ...
    @property
    def labels(self) -> int: ...
    @property
    def evaluations(self) -> int: ...
    @property
    def work(self) -> int: ...
