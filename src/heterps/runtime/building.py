"""From a job and a layout to the parts of a worker."""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from heterps.data.lane_plan import LanePlan
from heterps.job.data import DataSpec
from heterps.job.spec import DEFAULT_TABLE, Job
from heterps.job.training import ScheduleSpec, TableEntry
from heterps.models.chain import Chain
from heterps.models.load import load_model
from heterps.ps.client import Client
from heterps.ps.protocol import VALUE_BYTES, DenseSpec, TableSpec
from heterps.ps.rules import make_rule
from heterps.runtime.channel import Mesh
from heterps.runtime.collective import Alone, ChannelGroup, GlooGroup, ReplicaGroup
from heterps.runtime.dense_update import DenseUpdate, ServerUpdate, SummedUpdate
from heterps.runtime.devices import own_device
from heterps.runtime.emulation import Emulation, exchanged_bytes
from heterps.runtime.inputs import Inputs
from heterps.runtime.layout import Layout
from heterps.runtime.lookups import Announced, Lookups
from heterps.runtime.metrics import counts_for, task_of
from heterps.runtime.optimizers import learning_rate_factor, make_optimizer
from heterps.runtime.replica import Replica
from heterps.runtime.shared_group import MAX_REPLICAS, SharedGroup
from heterps.runtime.stage import Stage
from heterps.runtime.threads import Threads
from heterps.runtime.warm_start import read_warm_start
from heterps.wire.wake import Wake

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_STORE: Any = dist
_SUM = ".sum"


def build_model(job: Job) -> Chain:
    """The whole chain of a job with its first weights."""
    assert job.model is not None
    assert job.data is not None
    known = {"slots": [slot.name for slot in job.data.sparse], "dense": len(job.data.dense)}
    chain = load_model(job.model, Path(job.folder), job.seed, known, _said(job.data))
    return chain.to(DTYPES[job.dtype])


def _said(data: DataSpec) -> dict[str, tuple[str, Any]]:
    """Of the model, by the section of its data."""
    named = {slot.name: slot.pooling for slot in data.sparse if slot.pooling is not None}
    at = next((n for n, slot in enumerate(data.sparse) if slot.pooling is not None), 0)
    return {"pooling": (f"data.sparse[{at}].pooling", named)} if named else {}


def make_group(
    layout: Layout,
    place: tuple[int, int],
    key: bytes,
    generation: int,
    listen: str,
    host: str,
    encrypt: bool,
    *,
    together: bool = False,
) -> tuple[Any, str]:
    """What the replicas of a stage meet by, and on the first one of them the address for it;
    ``together``: all of them are on this host."""
    stage, replica = place
    replicas = layout.stages[stage].units
    if replicas == 1:
        return Alone(), ""
    if encrypt:
        group = ChannelGroup(key, generation, stage, replica, encrypt=True)
        if replica:
            return group, ""
        own = listen + _SUM if listen.startswith("ipc://") else listen
        return group, group.listen(own, replicas)
    if together and replicas <= MAX_REPLICAS:
        shared = SharedGroup(stage, replica, replicas)
        return shared, "" if replica else shared.make_pipes()
    if replica:
        return None, ""
    store = _STORE.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    return store, f"{host}:{store.port}"


def join_replicas(
    made: Any, layout: Layout, place: tuple[int, int], options: argparse.Namespace, meeting: str
) -> ReplicaGroup:
    """The group of a stage's replicas, once the address of the first one is known to all."""
    stage, replica = place
    if isinstance(made, ChannelGroup):
        if replica:
            made.connect(meeting)
        else:
            made.await_others()
    if isinstance(made, SharedGroup):
        made.join(meeting)
    if isinstance(made, ReplicaGroup):
        return made
    host, _, port = meeting.rpartition(":")
    store = made or _STORE.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
    replicas = layout.stages[stage].units
    return GlooGroup(store, options.generation, stage, replica, replicas, options.host)


def build_replica(
    job: Job,
    layout: Layout,
    place: tuple[int, int],
    mesh: Mesh,
    client: Client,
    group: ReplicaGroup,
    wake: Wake,
    turn: int = 0,
) -> Replica:
    """``turn`` is the worker's among those of its host with such a device."""
    whole = build_model(job)
    if job.dense_sync == "server":  # whose tensors begin with what the first worker gives them
        found = read_warm_start(job, whole.state_dict(), whole.tables)
        if found is not None:
            whole.load_state_dict(found.weights)
    own = layout.stages[place[0]]
    unit = next(entry for entry in job.cluster.types if entry.name == own.type)
    device = own_device(unit.device, turn)
    chain = whole.slice(own.first, own.last).to(device)
    like = torch.empty(0, dtype=DTYPES[job.dtype], device=device)
    task = task_of(whole)
    update = _update(job, layout, chain, client, group, own.units)
    stage = Stage(
        chain,
        own.first,
        update,
        before=own.before,
        after=own.after,
        seed=job.seed,
        # The last stage goes backward at once: it never has gradients of two batches to add to.
        stale=layout.staleness > 0 and own.after is not None,
        threads=Threads.of(
            chain,
            layout.train.micro_batch_size,
            torch.get_num_threads(),
            bags=job.data is None or job.data.has_bags,
        ),
    )
    tables = {name: client.table(name) for name in chain.tables}
    announced = announcements(job, lambda: replica.layout, whole.tables)
    value_bytes = VALUE_BYTES[client.dtype]
    lookups = Lookups(chain, tables, announced, like, clip=job.clip.row, value_bytes=value_bytes)
    inputs = Inputs(lookups, wake, layout.staleness)
    counts = lambda: counts_for(task, job.validation.k)  # noqa: E731
    replica = Replica(
        layout,
        place,
        stage,
        mesh,
        inputs,
        lookups,
        counts,
        like,
        Emulation.of(unit),
        _exchanged_bytes(job, chain, own.units),
        far_rows=client.far,
    )
    return replica


def _exchanged_bytes(job: Job, chain: Chain, replicas: int) -> float:
    weights = sum(weight.nbytes for weight in chain.trained.values())
    return exchanged_bytes(weights, replicas, by_servers=job.dense_sync == "server")


def announcements(
    job: Job, current: Callable[[], Layout], dims: Mapping[str, int]
) -> Callable[[str, int], Announced]:
    """What each table is told of a batch, by the layout of that time."""
    entries, rates = job.tables_of(dims), table_rates(job, dims)

    def announced(table: str, batch: int) -> Announced:
        lr = None
        if entries[table].scheduled and job.optimizer.schedule != ScheduleSpec():
            factor = learning_rate_factor(job.optimizer.schedule, batch, current().batches)
            lr = rates[table] * factor
        return Announced(current().parts(batch)[table], lr)

    return announced


def table_rates(job: Job, dims: Mapping[str, int]) -> dict[str, float]:
    """The learning rate of each table before any schedule: the job's, or else its rule's own."""
    return {name: make_rule(own.rule, own.lr).lr for name, own in job.tables_of(dims).items()}


def table_spec(job: Job, name: str, dim: int, cold: str | None = None) -> TableSpec:
    """A table of the model as its servers make it. Its seed tells it from the other tables."""
    entry = job.tables.get(name) or job.tables.get(DEFAULT_TABLE) or TableEntry()
    memory = None if entry.memory_gib is None else int(entry.memory_gib * 2**30 / job.servers.count)
    return TableSpec(
        dim,
        entry.rule,
        entry.lr,
        dict(entry.options),
        entry.initial,
        entry.scale,
        seed=table_seed(job.seed, name),
        memory_bytes=memory,
        path=cold if memory else None,
        admission=entry.admission,
        evict_after=entry.evict_after,
        max_rows=entry.max_rows // job.servers.count if entry.max_rows else 0,
        staleness=job.workload.staleness,
        threads=job.servers.threads,
    )


def table_seed(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest(), "big")


def _update(
    job: Job, layout: Layout, chain: Chain, client: Client, group: ReplicaGroup, replicas: int
) -> DenseUpdate:
    schedule, total = job.optimizer.schedule, layout.batches

    def factor(batch: int) -> float:
        return learning_rate_factor(schedule, batch, total)

    if job.dense_sync == "server":
        spec = dense_spec(job)
        weights = {
            name: client.create_tensor(tensor_name(name), weight.detach().cpu().numpy(), spec)
            for name, weight in chain.named_parameters()
        }
        return ServerUpdate(chain, weights, job.optimizer.lr, clip=job.clip.layer, factor=factor)
    return SummedUpdate(
        chain,
        group,
        lambda weights: make_optimizer(job.optimizer, weights),
        count=replicas,
        clip=job.clip.layer,
        factor=factor,
    )


def tensor_name(weight: str) -> str:
    """What a dense weight is called on the servers, whose names know fewer characters."""
    digest = hashlib.blake2b(weight.encode(), digest_size=4).hexdigest()
    return f"{re.sub('[^A-Za-z0-9_.-]', '_', weight)[:80]}-{digest}"


def dense_spec(job: Job) -> DenseSpec:
    """The server's rule that does what the job's optimizer does."""
    own = job.optimizer
    options: dict[str, float] = {}
    if own.name == "adam" and own.betas is not None:
        options |= {"beta1": own.betas[0], "beta2": own.betas[1]}
    if own.eps is not None and own.name in ("adam", "adagrad"):
        options["eps"] = own.eps
    return DenseSpec(rule=own.name, lr=own.lr, options=options)


def validation_batches(plan: LanePlan, at_most: int | None) -> int:
    return min(plan.batches_per_epoch, at_most or plan.batches_per_epoch)
