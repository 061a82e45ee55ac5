"""Where in a run a layer is called: what random draws depend on, and all they depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Context:
    """``micro_batch`` is numbered through the whole run; ``layer`` is filled in by the chain."""

    seed: int = 0
    micro_batch: int = 0
    training: bool = True
    layer: str = ""

    def at(self, layer: str) -> Context:
        return Context(self.seed, self.micro_batch, self.training, layer)

    def key(self, purpose: str = "") -> int:
        """A number for (seed, layer, micro-batch); ``purpose`` tells the draws of a layer apart."""
        words = repr((self.seed, self.layer, self.micro_batch, purpose)).encode()
        return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little") >> 1

    def generator(self, purpose: str = "") -> torch.Generator:
        """For the draws of a layer. It is on the CPU, so that they are the same on every device."""
        return torch.Generator().manual_seed(self.key(purpose))


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Let what draws from torch's own generators draw from ``key``, and leave no trace of it.

    The generators belong to the process: only one thread of it may be in here.
    """
    # Asking whether there is a GPU would take memory of one in every process that uses none.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    on_gpu = torch.cuda.get_rng_state_all() if in_use else None
    on_cpu = torch.get_rng_state()
    torch.default_generator.manual_seed(key)
    if on_gpu is not None:
        torch.cuda.manual_seed_all(key)  # whichever of them this process computes on
    try:
        yield
    finally:
        torch.set_rng_state(on_cpu)
        if on_gpu is not None:
            torch.cuda.set_rng_state_all(on_gpu)
