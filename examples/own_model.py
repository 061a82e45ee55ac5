"""A model of one's own: a function that returns a chain, with a layer that torch does not have."""

from pathlib import Path

import torch
from torch import nn

from heterps.models import (
    Chain,
    Concat,
    Layer,
    LocalRows,
    LocalTable,
    LogLoss,
    Predictor,
    SparseEmbedding,
    load_model,
)
from heterps.models.trace import trace


class Products(Layer):
    """The products of every two slots' rows, summed, as in a factorization machine."""

    def forward(self, batch, context):
        rows = batch["rows"]  # [samples, slots, dim]
        products = (rows.sum(dim=1) ** 2 - (rows**2).sum(dim=1)) / 2
        return {"x": rows.flatten(1), "products": products}


def build(slots, dense, dim=8, hidden=32):
    return Chain(
        [
            ("embedding", SparseEmbedding(slots, dim, pooling="none", output="rows")),
            ("products", Products()),
            ("concat", Concat(["x", "products", "dense"])),
            ("fc", nn.Linear((len(slots) + 1) * dim + dense, hidden)),
            ("relu", nn.ReLU()),
            ("out", nn.Linear(hidden, 1)),
            ("loss", LogLoss()),
        ]
    )


def main() -> None:
    batch = {
        "label": torch.tensor([0.0, 1.0]),
        "dense": torch.tensor([[0.5], [1.5]]),
        "C1": torch.tensor([11, 12]),
        "C2": torch.tensor([21, 21]),
    }
    args = {"slots": ["C1", "C2"], "dense": 1}
    model = load_model({"file": "own_model.py", "args": args}, folder=Path(__file__).parent)

    for layer in trace(model, batch).layers:
        print(f"{layer.name:9} {layer.kind:9} {layer.input_bytes:3g} bytes {layer.flops:4g} flops")

    predictor = Predictor(model, LocalRows({"default": LocalTable(dim=8)}))
    print("probabilities:", list(predictor(batch).shape))


if __name__ == "__main__":
    main()
