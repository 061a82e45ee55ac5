"""The building blocks of every validated object: strict numbers, and errors that name the path."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from heterps.errors import InputError, UnknownNameError


def refuse(message: str, *at: int | str) -> PydanticCustomError:
    """The error of a validator; ``at`` leads on from the field to the part of it that is wrong."""
    return PydanticCustomError("refused", "{message}", {"message": message, "at": at})


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(f"expected a number, got {shown(value)}")
    if not _finite(value):
        raise refuse(f"expected a finite number, got {shown(value)}")
    return value


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _whole(value: object) -> int:
    number = _number(value)
    assert isinstance(number, int | float)
    if number != int(number):
        raise refuse(f"expected a whole number, got {shown(value)}")
    return int(number)


def _text(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise refuse(f"expected a non-empty text, got {shown(value)}")
    return value


def _string(value: object) -> object:
    if not isinstance(value, str):
        raise refuse(f"expected a text, got {shown(value)}")
    return value


def _flag(value: object) -> object:
    if not isinstance(value, bool):
        raise refuse(f"expected true or false, got {shown(value)}")
    return value


def one_of(*names: str) -> BeforeValidator:
    """For a field that is one of a few words."""
    listed = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]

    def check(value: object) -> object:
        if value not in names:
            near = difflib.get_close_matches(value, names, n=1) if isinstance(value, str) else []
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise refuse(f"expected {listed}, got {shown(value)}{hint}")
        return value

    return BeforeValidator(check)


def _at_least(low: float) -> AfterValidator:
    def check(value: float) -> float:
        if value < low:
            raise refuse(f"expected {low:g} or more, got {shown(value)}")
        return value

    return AfterValidator(check)


def _at_most(high: int) -> AfterValidator:
    def check(value: int) -> int:
        if value > high:
            raise refuse(f"expected {high} or less, got {shown(value)}")
        return value

    return AfterValidator(check)


def _unit_interval(value: float) -> float:
    if not 0 <= value <= 1:
        raise refuse(f"expected a fraction in [0, 1], got {shown(value)}")
    return value


def shown(value: object) -> str:
    """The value as it is quoted in a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _computable(value: float) -> float:
    if value and not 1e-50 <= abs(value) <= 1e50:
        raise refuse(f"expected 0 or a number from 1e-50 to 1e50, got {shown(value)}")
    return value


Text = Annotated[str, BeforeValidator(_text)]
AnyText = Annotated[str, BeforeValidator(_string)]
Flag = Annotated[bool, BeforeValidator(_flag)]
# Products of amounts stay finite numbers.
Amount = Annotated[float, BeforeValidator(_number), _at_least(0), AfterValidator(_computable)]
Bytes = Annotated[int | float, BeforeValidator(_number), _at_least(0)]
Share = Annotated[float, BeforeValidator(_number), AfterValidator(_unit_interval)]
Count = Annotated[int, BeforeValidator(_whole), _at_least(0)]
Seed = Annotated[int, BeforeValidator(_whole), _at_least(0), _at_most(2**63 - 1)]
Positive = Annotated[int, BeforeValidator(_whole), _at_least(1), _at_most(10**15)]
# More than anyone rents, and few enough to be counted exactly in a float.
Units = Annotated[int, BeforeValidator(_whole), _at_least(0), _at_most(10**12)]


class Record(BaseModel):
    """A frozen object read from a mapping; unknown keys and bad values are refused by path."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, document: object, path: str = "") -> Self:
        """Raises InputError for the first bad field, its path below ``path``."""
        if not isinstance(document, Mapping):
            raise InputError(
                path or cls.__name__.lower(), f"expected a mapping, got {shown(document)}"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise _input_error(cls, error.errors()[0], path) from None

    def as_document(self) -> dict[str, Any]:
        """The mapping that ``parse`` reads back, without the keys that hold their default."""
        return self.model_dump(mode="json", exclude_unset=True)


def _input_error(cls: type[BaseModel], error: ErrorDetails, path: str) -> InputError:
    within: tuple[int | str, ...] = error.get("ctx", {}).get("at", ())
    where = join_path(path, (*error["loc"], *within))
    if error["type"] == "extra_forbidden":
        parent = _model_at(cls, error["loc"][:-1])
        return UnknownNameError(where, "key", str(error["loc"][-1]), _keys(parent))
    if error["type"] == "missing":
        return InputError(where, "is missing")
    if error["type"] in ("model_type", "dict_type", "mapping_type"):
        return InputError(where, f"expected a mapping, got {shown(error['input'])}")
    if error["type"] in ("list_type", "tuple_type"):
        return InputError(where, f"expected a list, got {shown(error['input'])}")
    message = error["msg"]
    return InputError(where, message[0].lower() + message[1:])


def join_path(path: str, parts: Sequence[int | str]) -> str:
    """``cluster`` and ``("types", 0, "limit")`` give ``cluster.types[0].limit``."""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _keys(cls: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in cls.model_fields.items()]


def _model_at(cls: type[BaseModel], parts: Sequence[int | str]) -> type[BaseModel]:
    for part in parts:
        if isinstance(part, str) and part in cls.model_fields:
            inner = _inner_model(cls.model_fields[part].annotation)
            cls = inner or cls
    return cls


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _inner_model(argument)
        if found is not None:
            return found
    return None
