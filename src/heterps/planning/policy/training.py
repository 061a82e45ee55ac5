"""Training the policy network in torch: imitation, REINFORCE, and back to numpy weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from heterps.planning.policy.features import Features
from heterps.planning.policy.network import WIDTH, Policy, Preferences, shapes


@dataclass(frozen=True)
class FeatureBatch:
    """Problems padded to the same number of layers and types. ``runs`` masks padding too."""

    layer: Tensor  # [problems, layers, LAYER_WIDTH]
    pair: Tensor  # [problems, layers, types, PAIR_WIDTH]
    runs: Tensor  # [problems, layers, types]
    layers: Tensor  # [problems]
    types: Tensor  # [problems]

    @classmethod
    def of(cls, problems: Sequence[Features]) -> FeatureBatch:
        layers = [entry.pair.shape[0] for entry in problems]
        types = [entry.pair.shape[1] for entry in problems]
        shape = (len(problems), max(layers), max(types))
        layer = torch.zeros(*shape[:2], problems[0].layer.shape[1])
        pair = torch.zeros(*shape, problems[0].pair.shape[2])
        runs = torch.zeros(shape, dtype=torch.bool)
        for index, entry in enumerate(problems):
            layer[index, : layers[index]] = torch.from_numpy(entry.layer)
            pair[index, : layers[index], : types[index]] = torch.from_numpy(entry.pair)
            runs[index, : layers[index], : types[index]] = torch.from_numpy(entry.runs)
        return cls(layer, pair, runs, torch.tensor(layers), torch.tensor(types))


class PolicyNetwork(nn.Module):
    """The same function as ``Policy.preferences``, over a batch of problems, with gradients."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.cell = policy.cell
        self.plain = nn.ParameterDict()
        kind: type[nn.LSTM] | type[nn.RNN] = nn.LSTM if policy.cell == "lstm" else nn.RNN
        self.recurrent = nn.ModuleList(
            kind(WIDTH, WIDTH, batch_first=True, bidirectional=True) for _ in range(2)
        )
        with torch.no_grad():
            for name, value in policy.weights.items():
                if name.startswith("recurrent"):
                    self._set_recurrent(name, torch.from_numpy(value))
                else:
                    key = name.replace(".", "_")
                    self.plain[key] = nn.Parameter(torch.from_numpy(value.copy()))

    def _torch_names(self, name: str) -> tuple[nn.Module, str]:
        number, direction, part = name.removeprefix("recurrent").split(".")
        suffix = "_l0" if direction == "forward" else "_l0_reverse"
        stem = {"input": "weight_ih", "hidden": "weight_hh", "bias": "bias_ih"}[part]
        return self.recurrent[int(number) - 1], stem + suffix

    def _set_recurrent(self, name: str, value: Tensor) -> None:
        module, attribute = self._torch_names(name)
        getattr(module, attribute).copy_(value.T if value.ndim == 2 else value)
        if attribute.startswith("bias_ih"):
            # One bias is enough: the second stays zero and is not trained.
            other = getattr(module, attribute.replace("bias_ih", "bias_hh"))
            other.zero_()
            other.requires_grad_(False)

    def policy(self) -> Policy:
        weights = {}
        for name in shapes(self.cell):
            if name.startswith("recurrent"):
                module, attribute = self._torch_names(name)
                value = getattr(module, attribute)
                value = value.T if value.ndim == 2 else value
            else:
                value = self.plain[name.replace(".", "_")]
            weights[name] = np.ascontiguousarray(value.detach().numpy()).copy()
        return Policy(self.cell, weights)

    def forward(self, batch: FeatureBatch) -> tuple[Tensor, Tensor]:
        """``prefer`` and ``stay``, [problems, layers, types]."""
        w = self.plain
        types = batch.pair.shape[2]
        embedded = batch.pair @ w["embed_pair"] + (batch.layer @ w["embed_layer"])[:, :, None]
        x = torch.tanh(embedded + w["embed_bias"]).transpose(1, 2)
        hidden = self._run(0, x, batch)
        real = (torch.arange(types)[None] < batch.types[:, None])[:, :, None, None]
        mean = (hidden * real).sum(1, keepdim=True) / batch.types[:, None, None, None]
        most = hidden.masked_fill(~real, -torch.inf).amax(1, keepdim=True)
        seen = torch.cat([hidden, mean.expand_as(hidden), most.expand_as(hidden)], -1)
        mixed = torch.tanh(seen @ w["mix_weight"] + w["mix_bias"])
        out = torch.cat([self._run(1, mixed, batch), mixed], -1) @ w["head_weight"]
        out = (out + w["head_bias"]).transpose(1, 2)
        return out[..., 0].masked_fill(~batch.runs, -1e9), out[..., 1]

    def _run(self, number: int, x: Tensor, batch: FeatureBatch) -> Tensor:
        count, types, layers, width = x.shape
        flat = x.reshape(count * types, layers, width)
        lengths = batch.layers.repeat_interleave(types)
        packed = nn.utils.rnn.pack_padded_sequence(
            flat, lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = self.recurrent[number](packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=layers)
        return padded.reshape(count, types, layers, 2 * width)


def log_probability(prefer: Tensor, stay: Tensor, plans: Tensor, layers: Tensor) -> Tensor:
    """Of ``plans`` [problems, samples, layers], summed over each problem's layers."""
    count, samples, length = plans.shape
    types = prefer.shape[2]
    before = torch.roll(plans, 1, dims=2)
    bonus = torch.zeros(count, samples, length, types)
    bonus.scatter_(3, before[..., None], 1.0)
    bonus[:, :, 0] = 0
    logits = prefer[:, None] + stay[:, None] * bonus
    chosen = torch.log_softmax(logits, -1).gather(3, plans[..., None])[..., 0]
    real = torch.arange(length)[None, None] < layers[:, None, None]
    return (chosen * real).sum(2)


def as_preferences(prefer: Tensor, stay: Tensor, problem: int, batch: FeatureBatch) -> Preferences:
    """The numpy form of one problem of a batch, for sampling."""
    layers, types = int(batch.layers[problem]), int(batch.types[problem])
    return Preferences(
        prefer[problem, :layers, :types].detach().numpy(),
        stay[problem, :layers, :types].detach().numpy(),
    )
