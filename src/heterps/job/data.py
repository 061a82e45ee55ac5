"""The job's data: where the samples are, and which columns mean what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator

from heterps.job.fields import Amount, Flag, Record, Text, one_of, refuse, shown
from heterps.storage.urls import password_problem

# Names that a batch gives to other tensors than slots.
RESERVED = ("dense", "label", "weight", "x", "loss", "prediction")


def _paths(value: object) -> tuple[str, ...]:
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, Sequence) or not entries:
        raise refuse(f"expected a path, a pattern or a list of them, got {shown(value)}")
    for index, entry in enumerate(entries):
        where = () if isinstance(value, str) else (index,)
        if not isinstance(entry, str) or not entry:
            raise refuse(f"expected a path or a pattern, got {shown(entry)}", *where)
        problem = password_problem(entry)
        if problem is not None:
            raise refuse(problem, *where)
    return tuple(entries)


def _validation(value: object) -> float | tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 < value < 1:
            raise refuse(f"expected a fraction between 0 and 1, or a path, got {shown(value)}")
        return float(value)
    return _paths(value)


def _document(value: float | tuple[str, ...] | None) -> float | list[str] | None:
    return list(value) if isinstance(value, tuple) else value


class SparseSlot(Record):
    """A column of categories: one a sample, or with ``multi`` a list of them.

    Equal values of slots with the same ``space`` have the same id, as in a history of items and an
    item; a slot has a space of its own if none is named. With ``hash: false`` the whole numbers of
    the column are the ids. ``pooling`` is for the model, which has its own if none is named.
    """

    name: Text
    multi: Flag = False
    space: Text | None = None
    hash: Flag = True
    pooling: Annotated[Literal["sum", "mean"], one_of("sum", "mean")] | None = None


# Parts of the names of options that hold secrets, which would end up in the run folder.
_SECRET = ("secret", "password", "passwd", "token", "credential", "private")


def _without_secrets(storage: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for protocol, options in storage.items():
        for at in _secrets(options):
            problem = "is a secret, and job files are copied into run folders"
            raise refuse(f"{problem}: give it by the environment or a profile", protocol, *at)
    return storage


def _secrets(options: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from ((name, *inner) for inner in _secrets(value))
        elif name.lower() == "key" or any(part in name.lower() for part in _SECRET):
            yield (name,)


def _more_than_nothing(value: float) -> float:
    if value <= 0:
        raise refuse(f"expected more than 0, got {shown(value)}")
    return value


def _slot(value: object) -> object:
    if isinstance(value, str) or not isinstance(value, Mapping | SparseSlot):
        return {"name": value}
    return value


def _distinct(names: Sequence[str], *within: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise refuse(f"column '{name}' stands twice", index, *within)


def _dense(names: tuple[str, ...]) -> tuple[str, ...]:
    _distinct(names)
    return names


def _sparse(slots: tuple[SparseSlot, ...]) -> tuple[SparseSlot, ...]:
    _distinct([slot.name for slot in slots])
    for index, slot in enumerate(slots):
        if slot.name in RESERVED or slot.name.endswith(".offsets"):
            raise refuse(f"a slot cannot be called '{slot.name}': rename the column", index)
    return slots


class CacheSpec(Record):
    """A folder on a fast local disk for what is read of remote files, at most ``gib`` of it."""

    path: Text
    gib: Annotated[Amount, AfterValidator(_more_than_nothing)] = 10.0


class FollowSpec(Record):
    """The run ends when nothing has arrived for ``idle_s``; without that it waits on."""

    idle_s: Amount | None = None


def _follow(value: object) -> object:
    """``true`` and ``false`` say it as well."""
    return ({} if value else None) if isinstance(value, bool) else value


class DataSpec(Record):
    """``train`` and ``validation`` are paths, patterns or lists of them; a number for
    ``validation`` is the share of the training samples that is set aside for it. ``storage`` holds
    options of file systems, by protocol. With ``follow`` the folder ``train`` grows while the run
    goes on, and each arrival is an epoch.
    """

    train: Annotated[tuple[str, ...], BeforeValidator(_paths)]
    validation: Annotated[
        float | tuple[str, ...] | None, PlainValidator(_validation), PlainSerializer(_document)
    ] = None
    label: Text = "label"
    weight: Text | None = None
    dense: Annotated[tuple[Text, ...], AfterValidator(_dense)] = ()
    sparse: Annotated[
        tuple[Annotated[SparseSlot, BeforeValidator(_slot)], ...], AfterValidator(_sparse)
    ] = ()
    transform: Annotated[Literal["log1p", "none"], one_of("log1p", "none")] = "log1p"
    storage: Annotated[dict[str, dict[str, Any]], AfterValidator(_without_secrets)] = Field(
        default_factory=dict
    )
    cache: CacheSpec | None = None
    follow: Annotated[FollowSpec | None, BeforeValidator(_follow)] = None

    def model_post_init(self, _context: Any) -> None:
        self._check_follow()
        if not self.dense and not self.sparse:
            raise refuse("names no input: list columns under dense or sparse")
        aims = {"label": self.label, "weight": self.weight}
        for aim, column in aims.items():
            if column in (*self.dense, *(slot.name for slot in self.sparse)):
                raise refuse(f"column '{column}' is the {aim} and an input at once")

    def _check_follow(self) -> None:
        if self.follow is None:
            return
        if len(self.train) != 1 or any(sign in self.train[0] for sign in "*?["):
            raise refuse("follow needs one folder, without a pattern", "train")
        if self.fraction is not None:
            problem = "follow leaves no share of the samples aside: give files of their own"
            raise refuse(problem, "validation")

    @property
    def fraction(self) -> float | None:
        """The share of the samples that validation gets, if it has no files of its own."""
        return self.validation if isinstance(self.validation, float) else None

    @property
    def has_bags(self) -> bool:
        """Whether a sample may have several ids in a slot."""
        return any(slot.multi for slot in self.sparse)

    def column_paths(self, *, labels: bool = True) -> dict[str, str]:
        """Every column that is read, and the field that names it."""
        paths = {self.label: "label"} if labels else {}
        if labels and self.weight is not None:
            paths[self.weight] = "weight"
        paths |= {name: f"dense[{index}]" for index, name in enumerate(self.dense)}
        return paths | {slot.name: f"sparse[{index}]" for index, slot in enumerate(self.sparse)}
