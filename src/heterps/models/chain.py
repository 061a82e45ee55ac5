"""A model: named layers, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import NoReturn

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from heterps.errors import InputError, ModelError
from heterps.models.batch import MAIN, Batch
from heterps.models.context import Context, seeded
from heterps.models.drawing import may_draw
from heterps.models.layers import Layer, RowLayer
from heterps.models.rows import Asked, Rows, RowSource, ask

Named = tuple[str, nn.Module]


class Chain(nn.Module):
    """Layers by name; what each of them makes is there for those after it.

    The last layer makes ``loss`` in training and ``prediction`` otherwise. Parameters are named
    ``<layer>.<parameter>``, in a slice of the chain as in the whole.
    """

    def __init__(self, layers: Sequence[Named]) -> None:
        super().__init__()
        self.layers = tuple(_checked(layers))
        self.tables = _tables(self.layers)
        for name, layer in self.layers:
            _register(self, name, layer)
        _refuse_tied_weights(self.layers)
        self._drawing = {name for name, layer in self.layers if may_draw(layer)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.layers)

    @property
    def row_layers(self) -> dict[str, RowLayer]:
        """The layers that ask for rows."""
        return {name: layer for name, layer in self.layers if isinstance(layer, RowLayer)}

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """Its weights by name, but for frozen ones, whose ``requires_grad`` is off."""
        return {name: each for name, each in self.named_parameters() if each.requires_grad}

    def slice(self, first: int, last: int) -> Chain:
        """Layers ``first`` to ``last``, both included: one stage. It shares their weights."""
        if not 0 <= first <= last < len(self.layers):
            within = f"layers 0 to {len(self.layers) - 1}"
            raise InputError("slice", f"expected a run of {within}, got {first} to {last}")
        return Chain(self.layers[first : last + 1])

    def ids(self, batch: Batch, context: Context) -> dict[str, Tensor]:
        """The ids whose rows each layer needs, from names of the data alone."""
        named = _Named(batch)
        return {
            name: layer.ids(named.for_layer(name), context.at(name))
            for name, layer in self.row_layers.items()
        }

    def ask(self, batch: Batch, source: RowSource, context: Context) -> dict[str, Asked]:
        """The rows that each layer needs, from ``source``."""
        return {
            name: ask(source, self.row_layers[name].table, ids, context.training)
            for name, ids in self.ids(batch, context).items()
        }

    def forward(
        self, batch: Batch, rows: Mapping[str, Rows] | None = None, context: Context | None = None
    ) -> dict[str, Tensor]:
        """All names of the batch and those that the layers made; ``context`` says if it is
        training, whatever the module was set to."""
        context = context or Context(training=self.training)
        # A layer may have been switched through another chain that holds it.
        if any(layer.training != context.training for _, layer in self.layers):
            self.train(context.training)
        named = _Named(batch)
        for name in self.names:
            named.update(self.step(name, named.for_layer(name), rows or {}, context))
        return dict(named)

    def step(
        self, name: str, batch: Batch, rows: Mapping[str, Rows], context: Context
    ) -> dict[str, Tensor]:
        """What one layer makes of a batch."""
        context = context.at(name)
        # Setting a generator takes longer than a small layer does.
        drawing = seeded(context.key()) if name in self._drawing else nullcontext()
        try:
            with drawing:
                made = _run(self._modules[name], batch, rows, context)
        except Exception as error:
            error.add_note(f"in layer '{name}' of the model")
            raise
        return _mapping(name, made)


class _Named(dict[str, Tensor]):
    """A batch that says which layer missed a name."""

    layer = ""

    def for_layer(self, layer: str) -> _Named:
        self.layer = layer
        return self

    def __missing__(self, name: str) -> NoReturn:
        missed(self.layer, name, self)


def missed(layer: str, name: str, known: Iterable[str]) -> NoReturn:
    """Raise the error for a name that is not there."""
    there = ", ".join(sorted(known)) or "none"
    raise ModelError(
        f"layer '{layer}'",
        f"reads '{name}', which neither the data nor a layer before it makes (there are: {there})",
    )


def _run(
    layer: nn.Module | None, batch: Batch, rows: Mapping[str, Rows], context: Context
) -> object:
    assert layer is not None
    if isinstance(layer, RowLayer):
        return layer(batch, _given(rows, context.layer), context)
    if isinstance(layer, Layer):
        return layer(batch, context)
    return {MAIN: layer(batch[MAIN])}


def _given(rows: Mapping[str, Rows], name: str) -> Rows:
    if name not in rows:
        raise ModelError(f"layer '{name}'", "got no rows; Chain.ask brings those that it needs")
    return rows[name]


def _mapping(name: str, made: object) -> dict[str, Tensor]:
    if not isinstance(made, Mapping):
        problem = f"returned {type(made).__name__}; expected a mapping of names to tensors"
        raise ModelError(f"layer '{name}'", problem)
    for key, value in made.items():
        if not isinstance(value, Tensor):
            problem = f"returned {type(value).__name__} for '{key}'; expected a tensor"
            raise ModelError(f"layer '{name}'", problem)
    return dict(made)


def _checked(layers: Sequence[Named]) -> Iterator[Named]:
    if not layers:
        raise ModelError("layers", "the chain is empty; a model has at least one layer")
    seen: set[str] = set()
    for index, entry in enumerate(layers):
        name, layer = _pair(entry, index)
        if name in seen:
            raise ModelError(f"layers[{index}]", f"the name '{name}' stands twice")
        seen.add(name)
        yield name, layer


def _pair(entry: object, index: int) -> Named:
    match entry:
        case (str() as name, nn.Module() as layer):
            return name, layer
    raise ModelError(f"layers[{index}]", "expected a pair of a name and a torch module")


def _register(chain: nn.Module, name: str, layer: nn.Module) -> None:
    try:
        chain.add_module(name, layer)
    except (KeyError, TypeError):
        problem = f"{name!r} cannot be a layer's name: no dots, not empty, no method's name"
        raise ModelError("layers", problem) from None


def _refuse_tied_weights(layers: Sequence[Named]) -> None:
    owner: dict[int, str] = {}
    for name, layer in layers:
        for key, parameter in layer.named_parameters():
            if is_lazy(parameter):
                raise ModelError(f"layer '{name}'", f"'{key}' has no size yet; give its input size")
            held = parameter.data_ptr() or id(parameter)
            if owner.setdefault(held, name) != name:
                raise ModelError(
                    f"layer '{name}'",
                    f"'{key}' is also a weight of layer '{owner[held]}', which may be on another "
                    "machine; give each its own, or make them one layer",
                )


def _tables(layers: Sequence[Named]) -> dict[str, int]:
    """The width of each table's rows."""
    tables: dict[str, int] = {}
    for name, layer in layers:
        if isinstance(layer, RowLayer) and tables.setdefault(layer.table, layer.dim) != layer.dim:
            problem = (
                f"wants rows of {layer.dim} from table '{layer.table}', an earlier layer of "
                f"{tables[layer.table]}; give it another table"
            )
            raise ModelError(f"layer '{name}'", problem)
    return tables
