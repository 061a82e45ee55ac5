"""Who a run is, and whose a folder of snapshots outside of it is.

```text
RUN/identity.json       the run's id, and where its snapshots were before
TO/NAME/run.json        the id of the run whose snapshots go there, and its folder
```

A run that goes on with its ``job.yaml`` alone, as on another machine, has the id that stands where
its snapshots are.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heterps.errors import InputError
from heterps.runtime.shelves import Shelf, make_shelf, mark_of
from heterps.storage.places import Place, Url

IDENTITY, OWNER = "identity.json", "run.json"


@dataclass(frozen=True)
class Identity:
    """``earlier`` are places that hold snapshots, as long as the present one holds none that is
    whole; None is the run folder."""

    id: str
    earlier: tuple[str | None, ...] = ()

    @classmethod
    def new(cls) -> Identity:
        return cls(secrets.token_hex(16))

    @classmethod
    def of(cls, run: Path) -> Identity | None:
        """None for a folder that holds a job alone, or is of an earlier version."""
        path = run / IDENTITY
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(found["id"]), tuple(found["earlier"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            instead = "delete it, and a resume takes the run's id from its snapshots"
            raise InputError(str(path), f"cannot be read ({error}): {instead}") from None

    def write(self, run: Path) -> None:
        """Whole or not at all."""
        partial = run / f".{IDENTITY}.partial"
        try:
            partial.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
            partial.replace(run / IDENTITY)
        except OSError as error:
            problem = f"cannot be written ({error.strerror})"
            raise InputError(str(run / IDENTITY), problem) from None


def id_at(place: Place) -> str | None:
    """Of the run whose snapshots go to a place, by its ``run.json``. Earlier versions wrote none.
    Raises InputError for a place that cannot be had."""
    found = (_owner(place) or {}).get("id")
    return None if found is None else str(found)


def claim(shelf: Shelf, run_id: str, run: Path, *, again: bool) -> bool:
    """Makes a place the run's own; whether it was not before. Raises InputError if it is another
    one's, or nothing can be written. A run that is there ``again`` goes on with what an earlier
    version has left, which does not say whose it is."""
    place, owner, marks = shelf.folder, _owner(shelf.folder), shelf.marks()
    found, is_here = (owner or {}).get("id"), mark_of(run_id) in marks
    if found == run_id or (found is not None and is_here):
        return False
    if not is_here:
        if marks - ({None} if again else set()):
            problem = f"{place} holds snapshots of another run"
            raise InputError("snapshot.to", f"{problem}: name the run otherwise, or snapshot.name")
        if found is not None or (owner is not None and not again):
            raise _taken(place, owner)
    text = json.dumps({"id": run_id, "run": str(run.absolute())})
    _write_owner(place, text, anew=owner is None)
    if id_at(place) != run_id:  # another one has claimed it at the same time
        raise _taken(place, _owner(place))
    return True


def withdraw(place: Place, run_id: str) -> None:
    """The place is anyone's again, if it is the run's and no snapshot is there. Tried once, and
    nothing is said of what goes wrong."""
    here = place.tried_once() if isinstance(place, Url) else place
    with contextlib.suppress(InputError, OSError):
        if make_shelf(here).marks() or id_at(here) != run_id:
            return
        owner = here / OWNER
        owner.remove() if isinstance(owner, Url) else owner.unlink()


def _owner(place: Place) -> Mapping[str, Any] | None:
    """What ``run.json`` says; None where there is none."""
    try:
        found = json.loads((place / OWNER).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InputError(str(place), f"cannot be read ({error.strerror})") from None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write_owner(place: Place, text: str, *, anew: bool) -> None:
    """On a disk one of several that write it ``anew`` at once is the first; the others leave it."""
    if isinstance(place, Url):
        (place / OWNER).write_text(text)
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        with (place / OWNER).open("x" if anew else "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return
    except OSError as error:
        raise InputError(str(place), f"cannot be written ({error.strerror})") from None


def _taken(place: Place, owner: Mapping[str, Any] | None) -> InputError:
    problem = f"{place} is that of another run ({(owner or {}).get('run', 'unknown')})"
    instead = f"delete {OWNER} there if that one is over, or begin this one with a snapshot.name"
    return InputError("snapshot.to", f"{problem}: {instead}")
