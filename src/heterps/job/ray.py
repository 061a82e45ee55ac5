"""What the Ray engine is told: the cluster it runs on, and what of it a unit is."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from heterps.job.fields import Amount, Record, Text, refuse

_LONGEST_FOLDER = 60
_OWN = {"CPU": "num_cpus", "GPU": "num_gpus"}


class RaySpec(Record):
    """``address`` of a running cluster (``auto``: the one that this machine is a node of); without
    one, and without RAY_ADDRESS, a cluster is started on this machine for the run. ``folder`` is
    where processes keep files on their nodes, cold rows among them; ``wait_s`` is how long the
    cluster may take to make room for the run.
    """

    address: Text | None = None
    folder: Text = "/tmp"
    wait_s: Amount = 10.0

    def model_post_init(self, _context: Any) -> None:
        if not self.folder.startswith("/") or len(self.folder) > _LONGEST_FOLDER:
            most = f"of at most {_LONGEST_FOLDER} characters, since unix sockets are in it"
            raise refuse(f"expected an absolute path {most}", "folder")


class RayNeeds(Record):
    """What a unit of a resource type takes of a Ray node: ``resources`` are the cluster's own, such
    as XPU, and ``labels`` those that the node must have."""

    num_cpus: Amount | None = None
    num_gpus: Amount | None = None
    resources: dict[str, Amount] = Field(default_factory=dict)
    labels: dict[str, Text] = Field(default_factory=dict)

    def model_post_init(self, _context: Any) -> None:
        for name, amount in self.resources.items():
            if name in _OWN:
                raise refuse(f"say {_OWN[name]} instead", "resources", name)
            if amount == 0:
                raise refuse("expected more than 0; leave it out for none", "resources", name)
