"""How the job trains: tables, optimizer, validation, servers, and what goes over the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from heterps.errors import UnknownNameError
from heterps.job.fields import Amount, Count, Flag, Positive, Record, Share, Text, one_of, refuse
from heterps.storage.urls import password_problem

# The rules of the parameter server and what each can be told beside its learning rate.
RULE_OPTIONS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("eps", "initial_accumulator"),
    "rowwise_adagrad": ("eps", "initial_accumulator"),
    "adam": ("beta1", "beta2", "eps"),
    "ftrl": ("beta", "l1", "l2"),
}
INITIALS = ("uniform", "normal", "constant", "zeros")
# Torch's optimizers for dense weights and what each can be told beside its learning rate.
OPTIMIZER_OPTIONS: dict[str, tuple[str, ...]] = {
    "sgd": ("momentum", "weight_decay"),
    "adam": ("betas", "eps", "weight_decay"),
    "adamw": ("betas", "eps", "weight_decay"),
    "adagrad": ("eps", "weight_decay"),
    "rmsprop": ("momentum", "eps", "weight_decay"),
}

Rule = Literal["sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"]
Initial = Literal["uniform", "normal", "constant", "zeros"]
OptimizerName = Literal["sgd", "adam", "adamw", "adagrad", "rmsprop"]
Metric = Literal["auc", "logloss", "loss", "recall"]


class TableEntry(Record):
    """A sparse table. ``dim`` is the model's and only checked if it is given; ``lr`` is by default
    the rule's own, and follows the optimizer's schedule unless ``scheduled`` is false.
    ``memory_gib`` is for the rows of all servers together; the rest of them goes to disk.
    """

    dim: Positive | None = None
    rule: Annotated[Rule, one_of(*RULE_OPTIONS)] = "rowwise_adagrad"
    lr: Amount | None = None
    options: dict[str, Amount] = Field(default_factory=dict)
    initial: Annotated[Initial, one_of(*INITIALS)] = "uniform"
    scale: Amount = 0.01
    scheduled: Flag = True
    memory_gib: Amount | None = None
    admission: Count = 0
    evict_after: Count = 0
    max_rows: Count = 0

    def model_post_init(self, _context: Any) -> None:
        for name in self.options:
            known = RULE_OPTIONS[self.rule]
            if name not in known:
                unknown = UnknownNameError("", f"option of {self.rule}", name, known)
                raise refuse(unknown.problem, "options", name)
        if self.memory_gib == 0:
            raise refuse("expected more than 0; leave it out for no bound", "memory_gib")


class ScheduleSpec(Record):
    """What learning rates are multiplied with: a rise from 0 over ``warmup`` batches, then a fall
    to ``floor`` that ends at batch ``total``, by default the run's last.
    """

    kind: Annotated[
        Literal["constant", "linear", "cosine"], one_of("constant", "linear", "cosine")
    ] = "constant"
    warmup: Count = 0
    total: Positive | None = None
    floor: Share = 0.0

    def model_post_init(self, _context: Any) -> None:
        if self.total is not None and self.total <= self.warmup:
            raise refuse(f"expected more than the warmup of {self.warmup} batches", "total")


class OptimizerSpec(Record):
    """Of dense weights: one of torch's, whose own defaults hold for what is not said."""

    name: Annotated[OptimizerName, one_of(*OPTIMIZER_OPTIONS)] = "adam"
    lr: Amount = 1e-3
    momentum: Amount | None = None
    betas: tuple[Share, Share] | None = None
    eps: Amount | None = None
    weight_decay: Amount | None = None
    schedule: ScheduleSpec = ScheduleSpec()

    def model_post_init(self, _context: Any) -> None:
        for option in self.options():
            if option not in OPTIMIZER_OPTIONS[self.name]:
                known = ", ".join(OPTIMIZER_OPTIONS[self.name])
                raise refuse(f"{self.name} has no such option (it has: {known})", option)
        if self.betas and max(self.betas) == 1:
            raise refuse("expected shares below 1", "betas")

    def options(self) -> dict[str, Any]:
        """What was said beside name and learning rate."""
        names = ("momentum", "betas", "eps", "weight_decay")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


class ValidationSpec(Record):
    """``every`` so many batches, by default after each epoch, with at most ``max_batches``. The
    best model is the one of the best ``metric``, which is by default that of the model's task; the
    run ends early when it has not improved ``patience`` times. ``k`` is that of recall@k.
    """

    every: Positive | None = None
    metric: Annotated[Metric, one_of("auc", "logloss", "loss", "recall")] | None = None
    patience: Positive | None = None
    k: Positive = 10
    max_batches: Positive | None = None


class ServersSpec(Record):
    """``type`` is the resource type that the parameter servers are paid as."""

    count: Positive = 1
    type: Text | None = None
    threads: Positive = 1


class WireSpec(Record):
    """How numbers travel: between stages, and between workers and parameter servers."""

    activations: Annotated[Literal["fp32", "bf16"], one_of("fp32", "bf16")] = "fp32"
    rows: Annotated[Literal["fp32", "bf16", "fp16"], one_of("fp32", "bf16", "fp16")] = "fp32"


class ClipSpec(Record):
    """The largest L2 norm of a layer's dense gradient in a batch, and of a row's gradient from one
    layer in one micro-batch."""

    layer: Amount | None = None
    row: Amount | None = None

    def model_post_init(self, _context: Any) -> None:
        for name in ("layer", "row"):
            if getattr(self, name) == 0:
                raise refuse("expected more than 0; leave it out for no clipping", name)


class SnapshotSpec(Record):
    """One ``every_s`` seconds, and one ``every`` so many batches if that is said; the last ``keep``
    are kept. 0 seconds: none by time. They go to the folder ``name`` in ``to``, a path or a URL: by
    default that of the run folder's name; without ``to`` into the run folder. A store that does not
    answer is tried for ``patience_s``.
    """

    every_s: Amount = 60.0
    every: Positive | None = None
    keep: Positive = 3
    to: Text | None = None
    name: Text | None = None
    patience_s: Amount = 60.0

    def model_post_init(self, _context: Any) -> None:
        if self.name is not None and (self.to is None or "/" in self.name):
            raise refuse("expected the name of a folder in its `to`", "name")
        problem = password_problem(self.to or "")
        if problem is not None:
            raise refuse(problem, "to")


class RecoverySpec(Record):
    """``retries`` is how often a run may fail in a row, without getting any further, before it is
    given up; ``drift`` how far its throughput may be from the prediction, as a share of it, before
    it is planned anew by what was seen, if that pays."""

    retries: Count = 3
    drift: Amount = 0.3


class SecuritySpec(Record):
    encrypt: Flag = False
