"""Reading jobs and documents from files."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml

from heterps.errors import InputError
from heterps.job.changes import read_change
from heterps.job.spec import Job

_PARTS = ("cluster", "profile", "plan", "workload")


def load_job(path: Path | str, changes: Sequence[str] = ()) -> Job:
    """A job from YAML or JSON; its parts stand inline or are paths relative to the job file. A
    profile that it does not name may stand beside it.

    Each of ``changes`` is ``a.b=value`` and replaces or adds a field, the value being read as YAML.
    Raises InputError with the file and the field.
    """
    path = Path(path)
    document = read_document(path)
    changed = [read_change(change, _value) for change in changes]
    for change in changed:
        if len(change.keys) == 1:  # such as another file for a part
            change.apply(document)
    said = any(change.path == "profile" for change in changed)
    if document.get("profile") is None and not said and beside(path).is_file():
        document["profile"] = beside(path).name
    origin: dict[str, Path] = {}
    for part in _PARTS:
        if isinstance(document.get(part), str):
            origin[part] = path.parent / document[part]
            document[part] = read_document(origin[part])
    for change in changed:
        if len(change.keys) > 1:
            change.apply(document)
    try:
        return Job.parse(document).in_folder(path.parent)
    except InputError as error:
        if any(error.path.startswith(change.path) for change in changed):
            raise InputError(f"--set {error.path}", error.problem) from None
        file = origin.get(error.path.partition(".")[0], path)
        raise InputError(f"{file}: {error.path}", error.problem) from None


def beside(path: Path) -> Path:
    """Where the profile of a job stands that names none: ``job.profile.json`` for ``job.yaml``."""
    return path.with_name(f"{path.stem}.profile.json")


def read_document(path: Path) -> dict[str, Any]:
    """The mapping in a JSON or YAML file. Raises InputError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text") from None
    except ValueError:  # a NUL inside it
        raise InputError(repr(str(path)), "is not a file name") from None
    document = _from_json(text, path) if path.suffix == ".json" else _from_yaml(text, str(path))
    if not isinstance(document, dict):
        raise InputError(str(path), "expected a mapping at the top")
    return document


def _from_json(text: str, path: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise InputError(str(path), f"the key '{name}' stands twice in one object")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}", f"is not JSON ({error.msg})") from None
    except RecursionError:
        raise InputError(str(path), "is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(str(path), f"is not JSON ({str(error).partition(';')[0]})") from None


def _value(text: str, where: str) -> Any:
    """Of a change. A pattern such as ``*.parquet`` would be a reference to nothing."""
    return text if text.startswith("*") else _from_yaml(text, where)


class _UniqueKeyLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(
                    problem="a key has to be a plain text", problem_mark=key.start_mark
                )
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key.value}' stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
            if key.tag == "tag:yaml.org,2002:bool":  # such as the key "on" of a profile
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


# YAML 1.1, which the loader follows, takes 1e-3 and 1.5e3 for texts: it wants both a point and a
# sign where there is an exponent.
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
_UniqueKeyLoader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


def _from_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{where}{line}", f"is not YAML ({error.problem})") from None
    except RecursionError:
        raise InputError(where, "is nested too deeply") from None
    # The loader lets errors of Python through, for example for the date 2024-13-45.
    except (yaml.YAMLError, ValueError, AttributeError) as error:
        raise InputError(where, f"is not YAML ({str(error).splitlines()[0]})") from None
