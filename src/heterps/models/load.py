"""The job's model: one of the zoo, or a function in a person's own file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from heterps.errors import HeterPSError, InputError, ModelError, UnknownNameError
from heterps.job.fields import shown
from heterps.models.chain import Chain
from heterps.models.context import Context, seeded
from heterps.models.zoo import ZOO

_KEYS = ("zoo", "file", "function", "args")


def load_model(
    document: Mapping[str, Any],
    folder: Path | None = None,
    seed: int = 0,
    defaults: Mapping[str, Any] | None = None,
    said: Mapping[str, tuple[str, Any]] | None = None,
) -> Chain:
    """The chain of ``{zoo: name, args: {}}`` or ``{file: my.py, function: build, args: {}}``.

    ``file`` is relative to ``folder``. ``defaults`` are arguments that are passed on to a function
    that knows them and is not given them, such as the slots of the job's data; ``said`` are those
    that it has to know, as a field of the job says them: (field, value). The first weights depend
    on ``seed`` alone. Raises InputError with the field, or the file and line, at fault.
    """
    _check(document)
    function, where = _function(document, folder or Path())
    known = {**(defaults or {}), **{name: value for name, (_, value) in (said or {}).items()}}
    args = _arguments(function, document.get("args") or {}, known, where)
    for name, (field, _) in (said or {}).items():
        if name not in args:
            problem = f"{where} takes no argument '{name}': leave this out, its layers say it"
            raise InputError(field, problem)
    try:
        with seeded(Context(seed, layer="weights").key()):
            chain = function(**args)
    except Exception as error:
        # A person's own code may fail in any way.
        if isinstance(error, InputError) and "zoo" in document and error.path in args:
            raise InputError(f"model.args.{error.path}", error.problem) from error
        raise _failure(error, where) from error
    if not isinstance(chain, Chain):
        problem = f"returned {shown(chain)}; expected a heterps Chain"
        raise ModelError(where, problem)
    return chain


def _check(document: object) -> None:
    if not isinstance(document, Mapping):
        raise InputError("model", f"expected a mapping, got {shown(document)}")
    for key in document:
        if key not in _KEYS:
            raise UnknownNameError(f"model.{key}", "key", str(key), _KEYS)
    if ("zoo" in document) == ("file" in document):
        raise InputError("model", "expected either 'zoo' (a name) or 'file' (a Python file)")
    if "zoo" in document and "function" in document:
        raise InputError("model.function", "a model of the zoo has none; leave it out")
    for key in ("zoo", "file", "function"):
        if key in document and not isinstance(document[key], str):
            raise InputError(f"model.{key}", f"expected a text, got {shown(document[key])}")
    args = document.get("args") or {}
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise InputError("model.args", f"expected a mapping of names, got {shown(args)}")


def _function(document: Mapping[str, Any], folder: Path) -> tuple[Callable[..., object], str]:
    """The function that builds the model, and how to name it."""
    if "zoo" in document:
        name = document["zoo"]
        if name not in ZOO:
            raise UnknownNameError("model.zoo", "model", name, ZOO)
        return ZOO[name], f"model '{name}'"
    path = folder / document["file"]
    module = _module(path)
    name = document.get("function", "build")
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise UnknownNameError("model.function", f"function of {path}", name, known)
    return function, f"{path}: {name}"


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("model.file", f"there is no file {path}")
    # By a name of its own: two files may be called alike, and neither shadows a package.
    spec = importlib.util.spec_from_file_location(f"heterps_model_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError("model.file", f"expected a Python file (.py), got {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # not into their folder
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ModelError(f"{path}:{error.lineno}", f"is not Python ({error.msg})") from error
    except Exception as error:
        # A person's own code may fail in any way.
        raise _failure(error, str(path)) from error
    finally:
        sys.dont_write_bytecode = writes
    return module


def _arguments(
    function: Callable[..., object],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    where: str,
) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    named = [
        name
        for name, entry in parameters.items()
        if entry.kind in (entry.POSITIONAL_OR_KEYWORD, entry.KEYWORD_ONLY)
    ]
    takes_any = any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values())
    for name in given:
        if name not in named and not takes_any:
            raise UnknownNameError(f"model.args.{name}", f"argument of {where}", name, named)
    args = {name: value for name, value in defaults.items() if name in named} | dict(given)
    for name in named:
        if parameters[name].default is inspect.Parameter.empty and name not in args:
            raise InputError(f"model.args.{name}", f"is missing; {where} needs it")
    return args


def _failure(error: BaseException, where: str) -> ModelError:
    """One line: the last place of the error in the person's file, if it is there, and its words."""
    file = where.rpartition(": ")[0] or where
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == Path(file).absolute()]
    place = f"{file}:{lines[-1]}" if lines else where
    said = (str(error).splitlines() or [""])[0]
    if isinstance(error, HeterPSError):
        return ModelError(place, said)
    return ModelError(place, f"{type(error).__name__}: {said}" if said else type(error).__name__)
