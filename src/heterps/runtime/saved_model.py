"""A trained model on disk: dense weights, a snapshot of the tables, and a manifest written last.

The folder appears, and replaces an earlier one of its name, when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from heterps.errors import SnapshotError
from heterps.events import finite
from heterps.storage.places import Place, Url, nameless_file

DENSE, TABLES, MANIFEST = "dense.safetensors", "tables", "manifest.json"


@contextmanager
def saving(path: Path, about: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """A folder to write into; at the end of the block it gets its manifest, with ``about`` in it,
    and becomes ``path``. After an error nothing has changed.
    """
    partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(6)}")
    partial.mkdir(parents=True)
    try:
        yield partial
        files = {file.name: _seal(file) for file in sorted(partial.iterdir()) if file.is_file()}
        (partial / MANIFEST).write_text(_manifest(about or {}, files), encoding="utf-8")
        _replace(path, partial)
    except OSError as error:
        raise SnapshotError(path, f"cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def save_to_url(
    folder: Url,
    state: Mapping[str, Tensor],
    about: Mapping[str, Any],
    tables: Callable[[Place], None],
) -> None:
    """The same at a URL, where the manifest makes a model of the files that are there by then.
    ``tables`` has theirs written. Raises SnapshotError, or InputError when patience ends.
    """
    try:
        with nameless_file() as local:
            local.write_bytes(safetensors.torch.save(_copied(state)))
            (folder / DENSE).put(local)
            files = {DENSE: _seal(local)}
        tables(folder / TABLES)
        (folder / MANIFEST).write_text(_manifest(about, files))
    except BaseException as error:
        folder.remove_if_possible()
        if isinstance(error, OSError):
            problem = f"cannot be written: {error.strerror or error}"
            raise SnapshotError(folder, problem) from error
        raise


def save_dense(folder: Path, state: Mapping[str, Tensor]) -> None:
    """Weights by ``<layer>.<parameter>``."""
    try:
        safetensors.torch.save_file(_copied(state), folder / DENSE)
    except (OSError, safetensors.SafetensorError) as error:
        raise SnapshotError(folder / DENSE, f"cannot be written: {error}") from error


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share memory, such as parts of a larger one, are refused otherwise."""
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }


def load_dense(folder: Place) -> dict[str, Tensor]:
    """What ``save_dense`` wrote. Raises SnapshotError for a file that is missing or damaged."""
    path = folder / DENSE
    try:
        with _local(path) as file:
            return safetensors.torch.load_file(file)
    except (OSError, safetensors.SafetensorError) as error:
        raise SnapshotError(path, f"cannot be read: {error}") from error


def read_manifest(folder: Place) -> dict[str, Any]:
    """What the model's writer says about it, after a look at sizes and checksums. Raises
    SnapshotError for a model that is not whole.
    """
    try:
        body = json.loads((folder / MANIFEST).read_text())
        about, files, digest = dict(body["about"]), dict(body["files"]), body["blake2b"]
    except FileNotFoundError:
        raise SnapshotError(folder, "holds no whole model") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SnapshotError(folder / MANIFEST, f"cannot be read: {error}") from error
    if digest != _digest_of({"about": about, "files": files}):
        raise SnapshotError(folder / MANIFEST, "has changed since it was written")
    for name, seal in files.items():
        if _found_seal(folder / name) != seal:
            raise SnapshotError(folder / name, "is missing or has changed since it was written")
    return about


def _manifest(about: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    body = {"about": finite(dict(about)), "files": files}
    return json.dumps({**body, "blake2b": _digest_of(body)}, indent=2) + "\n"


def _local(path: Place) -> AbstractContextManager[Path]:
    return nullcontext(path) if isinstance(path, Path) else path.fetched()


def _found_seal(path: Place) -> dict[str, Any] | None:
    try:
        with _local(path) as file:
            return _seal(file) if file.is_file() else None
    except FileNotFoundError:
        return None


def _digest_of(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _seal(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16))
    return {"bytes": file.stat().st_size, "blake2b": digest.hexdigest()}


def _replace(path: Path, new: Path) -> None:
    if not path.exists():
        new.rename(path)
        return
    old = path.with_name(f"{path.name}.partial-old-{secrets.token_hex(6)}")
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)
