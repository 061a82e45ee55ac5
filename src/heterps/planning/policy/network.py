"""The policy network, evaluated in numpy: no torch at planning time.

Every type is read by the same recurrent cell, forward and backward over the layers; between the two
recurrent passes each type sees the mean and the maximum over all types. The output per layer and
type is a preference and a bonus for staying on the type of the layer before, since stages are runs:

    p(t_l | t_{l-1}) = softmax_t(prefer[l, t] + stay[l, t] * [t == t_{l-1}])
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from heterps.errors import PolicyError
from heterps.planning.kernel import Assignments
from heterps.planning.policy.features import LAYER_WIDTH, PAIR_WIDTH, Features

Array = NDArray[np.floating[Any]]
CELLS = {"lstm": 4, "rnn": 1}  # gates per cell
WIDTH = 48
_DIRECTIONS = ("forward", "backward")


def shapes(cell: str) -> dict[str, tuple[int, ...]]:
    """The name and shape of every weight."""
    gates = CELLS[cell]
    result: dict[str, tuple[int, ...]] = {
        "embed.layer": (LAYER_WIDTH, WIDTH),
        "embed.pair": (PAIR_WIDTH, WIDTH),
        "embed.bias": (WIDTH,),
        "mix.weight": (6 * WIDTH, WIDTH),
        "mix.bias": (WIDTH,),
        "head.weight": (3 * WIDTH, 2),
        "head.bias": (2,),
    }
    for number in (1, 2):
        for direction in _DIRECTIONS:
            prefix = f"recurrent{number}.{direction}"
            result[f"{prefix}.input"] = (WIDTH, gates * WIDTH)
            result[f"{prefix}.hidden"] = (WIDTH, gates * WIDTH)
            result[f"{prefix}.bias"] = (gates * WIDTH,)
    return result


@dataclass(frozen=True)
class Preferences:
    """The policy's view of one problem; both arrays are [layers, types]."""

    prefer: Array
    stay: Array


@dataclass(frozen=True)
class Policy:
    """The weights of a network with one kind of cell."""

    cell: str
    weights: dict[str, Array]

    def __post_init__(self) -> None:
        if self.cell not in CELLS:
            raise PolicyError(f"a policy's cell is one of {', '.join(CELLS)}, not '{self.cell}'")
        expected = shapes(self.cell)
        if {name: value.shape for name, value in self.weights.items()} != expected:
            raise PolicyError("the policy's weights do not fit its network; train it anew")

    def preferences(self, features: Features) -> Preferences:
        w = self.weights
        pairs = features.pair.transpose(1, 0, 2)  # [types, layers, ...]
        x = np.tanh(
            pairs @ w["embed.pair"] + (features.layer @ w["embed.layer"])[None] + w["embed.bias"]
        )
        hidden = self._recurrent(1, x)
        mean, most = hidden.mean(0, keepdims=True), hidden.max(0, keepdims=True)
        seen = np.concatenate(
            [hidden, np.broadcast_to(mean, hidden.shape), np.broadcast_to(most, hidden.shape)], -1
        )
        mixed = np.tanh(seen @ w["mix.weight"] + w["mix.bias"])
        out = np.concatenate([self._recurrent(2, mixed), mixed], -1) @ w["head.weight"]
        out = (out + w["head.bias"]).transpose(1, 0, 2)
        prefer = np.where(features.runs, out[..., 0], np.float32(-1e9))
        return Preferences(prefer, np.ascontiguousarray(out[..., 1]))

    def _recurrent(self, number: int, x: Array) -> Array:
        step = _lstm if self.cell == "lstm" else _rnn
        parts = []
        for direction in _DIRECTIONS:
            prefix = f"recurrent{number}.{direction}"
            inputs = x if direction == "forward" else x[:, ::-1]
            gates = inputs @ self.weights[f"{prefix}.input"] + self.weights[f"{prefix}.bias"]
            out = step(gates, self.weights[f"{prefix}.hidden"])
            parts.append(out if direction == "forward" else out[:, ::-1])
        return np.concatenate(parts, -1)

    def save(self, path: Path) -> None:
        buffer = io.BytesIO()
        halved = {name: value.astype(np.float16) for name, value in self.weights.items()}
        np.savez_compressed(buffer, cell=np.array(self.cell), allow_pickle=False, **halved)
        path.write_bytes(buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Raises PolicyError."""
        try:
            content = io.BytesIO(path.read_bytes())
            with np.load(content, allow_pickle=False) as stored:
                names = [name for name in stored if name != "cell"]
                weights = {name: stored[name].astype(np.float32) for name in names}
                return cls(str(stored["cell"]), weights)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise PolicyError(f"{path}: is not a policy ({error})") from None

    @classmethod
    def shipped(cls, cell: str) -> Policy:
        """The pre-trained policy of the package."""
        return cls.load(Path(str(files(__package__) / f"{cell}.npz")))

    @classmethod
    def untrained(cls, cell: str, seed: int) -> Policy:
        rng = np.random.default_rng([11, seed])
        weights = {}
        for name, shape in shapes(cell).items():
            scale = 0.0 if name.endswith("bias") else (6 / sum(shape)) ** 0.5
            weights[name] = rng.uniform(-scale, scale, shape).astype(np.float32)
        return cls(cell, weights)


def _lstm(gates: Array, hidden: Array) -> Array:
    """``gates`` [types, layers, 4 * WIDTH] in the order input, forget, candidate, output."""
    h: Array = np.zeros((gates.shape[0], WIDTH), np.float32)
    c: Array = np.zeros_like(h)
    out = np.empty((*gates.shape[:2], WIDTH), np.float32)
    for step in range(gates.shape[1]):
        g = gates[:, step] + h @ hidden
        sigmoid = 1 / (1 + np.exp(-g))
        candidate = np.tanh(g[:, 2 * WIDTH : 3 * WIDTH])
        c = sigmoid[:, WIDTH : 2 * WIDTH] * c + sigmoid[:, :WIDTH] * candidate
        h = sigmoid[:, 3 * WIDTH :] * np.tanh(c)
        out[:, step] = h
    return out


def _rnn(gates: Array, hidden: Array) -> Array:
    h = np.zeros((gates.shape[0], WIDTH), np.float32)
    out = np.empty((*gates.shape[:2], WIDTH), np.float32)
    for step in range(gates.shape[1]):
        h = np.tanh(gates[:, step] + h @ hidden)
        out[:, step] = h
    return out


def sample(
    preferences: Preferences,
    count: int,
    rng: np.random.Generator,
    temperature: float | NDArray[np.float64] = 1.0,
) -> Assignments:
    """``count`` assignments drawn from the policy, one temperature for all or one each; at 0 the
    most likely type is taken layer by layer."""
    layers, types = preferences.prefer.shape
    scale = np.broadcast_to(np.asarray(temperature, np.float64), (count,))[:, None]
    noise = rng.gumbel(size=(layers, count, types))
    chosen = np.empty((count, layers), np.int32)
    rows = np.arange(count)
    for layer in range(layers):
        score = np.repeat(preferences.prefer[layer][None].astype(np.float64), count, axis=0)
        if layer:
            before = chosen[:, layer - 1]
            score[rows, before] += preferences.stay[layer, before]
        chosen[:, layer] = (score + scale * noise[layer]).argmax(1)
    return chosen
