"""A process on a unit that finds out what lies between it and the parameter servers."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from heterps.errors import HeterPSError
from heterps.parent import handed_secret
from heterps.ps.client import Client
from heterps.ps.protocol import DenseSpec
from heterps.ps.remote_tensor import RemoteTensor

FOUND = "link.json"
_BYTES = 8 << 20  # far more than what is under way at a time, so that the rate shows
_PINGS, _PULLS = 15, 6
_MOST_S = 4.0  # of each, and on one server; a slow link shows in one of them


def measured(client: Client) -> dict[str, float]:
    """``ms`` one way and ``mbps``, of the server that is the farthest. Others on the machines can
    only make it slower: the quickest counts."""
    there_and_back_s = _quickest(client.ping, _PINGS)
    pulled_s = max(_quickest(tensor.pull, _PULLS) for tensor in _one_on_each(client))
    under_way_s = max(1e-9, pulled_s - there_and_back_s)
    return {"ms": there_and_back_s / 2 * 1e3, "mbps": _BYTES * 8 / under_way_s / 1e6}


def _one_on_each(client: Client) -> list[RemoteTensor]:
    """A tensor lies on the server that its name falls to."""
    values = np.zeros(_BYTES // 4, np.float32)
    found: dict[int, RemoteTensor] = {}
    names = (f"probe-{number}" for number in itertools.count())
    while len(found) < client.shards:
        tensor = RemoteTensor(client, next(names), values.shape)
        if found.setdefault(tensor.shard, tensor) is tensor:
            tensor.create(values, DenseSpec("sgd"))
    return list(found.values())


def _quickest(act: Callable[[], object], times: int) -> float:
    taken: list[float] = []
    while len(taken) < times and sum(taken) < _MOST_S:
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return min(taken)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="heterps.runtime.profiling.probe", description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--server", required=True, action="append")
    parser.add_argument("--encrypt", action="store_true")
    options = parser.parse_args(argv)
    try:
        with Client(options.server, handed_secret(), encrypt=options.encrypt) as client:
            found = measured(client)
    except HeterPSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    aside = options.run / f"{FOUND}.new"
    aside.write_text(json.dumps(found))
    aside.replace(options.run / FOUND)
    time.sleep(3600)  # what it has found is read while it is there
    return 0


if __name__ == "__main__":
    sys.exit(main())
