"""A worker process: one replica of one stage, told by the coordinator what to do.

``python -m heterps.runtime.worker --run FOLDER --number N --control ADDRESS --listen ADDRESS``,
started with the run's key as its secret. The folder is this host's, for what it needs to keep.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from heterps.data.dataset import Dataset, Part
from heterps.data.follow import only
from heterps.data.lane_plan import LanePlan, lanes_of_replica
from heterps.data.lanes import Lanes
from heterps.data.prefetch import Prefetch
from heterps.data.reader import LaneReader
from heterps.errors import HeterPSError, InputError
from heterps.job.spec import Job
from heterps.parent import at_end, handed_secret
from heterps.ps.client import Client
from heterps.runtime.building import build_replica, join_replicas, make_group
from heterps.runtime.channel import Mesh
from heterps.runtime.code import with_code
from heterps.runtime.control import Line, Message
from heterps.runtime.layout import Layout
from heterps.runtime.orders import Orders, Segment
from heterps.runtime.replica import Replica
from heterps.storage.patience import waits_for_servers
from heterps.wire.segments import remove_segments_of, segment_folders
from heterps.wire.wake import Wake

_REPORT_EVERY_S = 0.25
_TURN_S = 1e-4  # after so long a thread lets others go on; Python's own 5 ms are a fifth of a batch


class Worker:
    """Carries out commands, one after the other, and reports what came of them."""

    def __init__(self, options: argparse.Namespace, key: bytes, line: Line, wake: Wake) -> None:
        self._options = options
        self._key = key
        self._line = line
        self._wake = wake
        self._segment = Segment(0, closed=True)
        self._reported_at = 0.0
        self._batch = self._told = -1  # committed last, and what of it is known
        self._first = 0  # of the segment
        self._readers: dict[Part, Prefetch] = {}
        self._trained_on: Dataset | None = None
        self._closing: list[Callable[[], Any]] = []
        self._replica: Replica | None = None
        self._arrived: list[str] | None = None  # the files of the present arrival

    def serve(self) -> None:
        """Until it is told to stop."""
        while (command := self._next()).kind != "stop":
            handle: Callable[[Message], None] = getattr(self, f"_do_{command.kind}")
            handle(command)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        for close in reversed(self._closing):
            close()

    def _next(self) -> Message:
        """The next command; neighbours that connect are answered meanwhile."""
        while self._line.commands.empty():
            if self._replica is None:
                command = self._line.wait(1.0)
                if command is not None:
                    return command
            else:
                self._replica.idle(0.5)
        command = self._line.wait()
        self._line.check()
        assert command is not None
        return command

    def _do_prepare(self, command: Message) -> None:
        """Builds everything that needs nobody else, and says where it can be reached."""
        fields, options = command.fields, self._options
        self._job = Job.parse(with_code(fields["job"], fields["code"], options.run))
        self._layout = Layout.from_fields(fields["layout"])
        self._place = self._layout.workers[options.number]
        self._turn = int(fields["turn"])
        compute_with(int(fields["threads"]))
        encrypt, wire = self._job.security.encrypt, self._job.wire.activations
        identity = (self._key, options.generation)
        self._mesh = Mesh(*identity, self._place, encrypt=encrypt, wire_dtype=wire, wake=self._wake)
        self._closing.append(self._mesh.close)
        addresses = [self._mesh.listen(address) for address in options.listen]
        self._group, meeting = make_group(
            self._layout,
            self._place,
            *identity,
            options.listen[-1],
            options.host,
            encrypt,
            together=fields["together"],
        )
        self._client = Client(
            fields["servers"],
            self._key,
            generation=options.generation,
            encrypt=encrypt,
            dtype=self._job.wire.rows,
        )
        self._closing.append(self._client.close)
        self._line.send("ready", {"addresses": addresses, "meeting": meeting})

    def _do_connect(self, command: Message) -> None:
        """Meets the neighbours and the other replicas of its stage."""
        stage, replica = self._place
        addresses: list[str] = command.fields["addresses"]
        at = {place: addresses[n] for n, place in enumerate(self._layout.workers)}
        if stage + 1 < len(self._layout.stages):
            peers = self._layout.routing.peers(stage, replica, stage + 1)
            self._mesh.connect({(stage + 1, peer): at[stage + 1, peer] for peer in peers})
        self._group = join_replicas(
            self._group, self._layout, self._place, self._options, command.fields["meetings"][stage]
        )
        self._closing.append(self._group.close)
        self._mesh.also_wake_by(self._group.sources)
        self._replica = build_replica(
            self._job,
            self._layout,
            self._place,
            self._mesh,
            self._client,
            self._group,
            self._wake,
            self._turn,
        )
        self._line.send("connected")

    def _do_load(self, command: Message) -> None:
        """Takes weights, and the optimizer's state if it comes along."""
        self._at_work.stage.load_state(command.tensors)
        self._line.send("loaded")

    def _do_state(self, command: Message) -> None:
        state = self._at_work.stage.state()
        self._line.send("state", tensors={n: t.detach().cpu().clone() for n, t in state.items()})

    def _do_follow(self, command: Message) -> None:
        """Another arrival is trained on from now on."""
        plan = LanePlan(**command.fields["plan"])
        self._layout = replace(self._layout, train=plan, batches=command.fields["batches"])
        self._at_work.layout = self._layout
        self._arrived = json.loads(command.tensors["files"].numpy().tobytes())
        reader = self._readers.pop("train", None)
        if reader is not None:
            reader.close()

    def _do_train(self, command: Message) -> None:
        self._segment = Segment(command.fields["end"], command.fields["closed"])
        self._first = first = command.fields["first"]
        reader = self._reader("train", self._layout.train, self._layout.batches)
        self._at_work.train(first, reader, self._orders())
        self._report(force=True)
        self._line.send("trained", {"end": self._segment.end})

    def _do_validate(self, command: Message) -> None:
        assert self._layout.validation is not None
        self._segment = Segment(command.fields["end"], closed=True)
        plan = self._layout.validation
        reader = self._reader("validation", plan, plan.batches_per_epoch)
        counts = self._at_work.validate(reader, self._orders())
        self._line.send("validated", {"counts": counts.pack()})

    @property
    def _at_work(self) -> Replica:
        assert self._replica is not None
        return self._replica

    def _orders(self) -> Orders:
        return Orders(self._current_segment, self._progressed, self._committed, self._waiting)

    def _current_segment(self) -> Segment:
        """As the coordinator last said."""
        while not self._line.commands.empty():
            command = self._line.wait()
            self._line.check()
            assert command is not None
            if command.kind == "stop":
                raise SystemExit(0)
            assert command.kind == "more", command.kind
            self._segment = Segment(command.fields["end"], command.fields["closed"])
        return self._segment

    def _progressed(self) -> None:
        self._line.progress += 1

    def _committed(self, batch: int) -> None:
        """The first of a segment is told at once: the pace of a run is counted from its end on."""
        self._batch = batch
        self._report(force=batch == self._first)

    def _waiting(self, finished: bool) -> None:
        """Where there is no more to do it says so at once: the coordinator knows what is next."""
        self._report(force=finished and self._batch != self._told)

    def _report(self, *, force: bool = False) -> None:
        """What has been committed since the last time, now and then."""
        now = time.monotonic()
        early = now < self._reported_at + _REPORT_EVERY_S or self._batch == self._told
        if early and not force:
            return
        self._reported_at, self._told = now, self._batch
        replica = self._at_work
        losses = [list(entry) for entry in replica.take_losses()]
        said = {**replica.figures(), "batch": self._batch, "losses": losses}
        if losses:
            said["counts"] = replica.take_counts().pack()
        self._line.send("progress", said)

    def _reader(self, part: Part, plan: LanePlan, batches: int) -> Prefetch | None:
        """For the first stage alone; the training reader stays open from segment to segment."""
        stage, replica = self._place
        if stage > 0:
            return None
        if part not in self._readers:
            data = self._open(part, plan)
            lanes = Lanes(plan, data.sizes, self._job.seed, shuffle=part == "train")
            owned = lanes_of_replica(replica, self._layout.routing.replicas[0], plan.lanes)
            stop = plan.batch(batches - 1).stop
            reader = LaneReader(data, lanes, owned, stop=stop)
            self._readers[part] = Prefetch(reader, stop=stop, on_read=self._wake.set)
        return self._readers[part]

    def _open(self, part: Part, plan: LanePlan) -> Dataset:
        """Raises InputError, also for data that are not what they were. Getting on with text that
        has to be read to its end is progress."""
        spec = self._job.data
        assert spec is not None
        if part == "train" and self._arrived is not None:
            spec = only(spec, self._arrived)
        if part == "validation" and spec.fraction is not None and self._trained_on is not None:
            data = self._trained_on.other(part)
        else:
            binary = self._at_work.counts.task == "binary"
            data = Dataset.open(spec, part, binary=binary, on_read=self._progressed)
        if data.samples != plan.samples:
            problem = f"{spec.train[0]} and others hold {data.samples} samples, not {plan.samples}"
            raise InputError(f"data.{part}", f"{problem} as before: have they changed?")
        if part == "train":
            self._trained_on = data
        return data


def compute_with(threads: int) -> None:
    """Before torch has computed anything: its threads do as the one that makes them. Numbers too
    small for a full mantissa become zero. An optimizer's means of gradients that stay zero fade
    into such, and they are slow: with batches of 32 a step of Adam took 2.7 ms for 0.5."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a worker until the coordinator ends it."""
    options = _parser().parse_args(argv)
    sys.setswitchinterval(_TURN_S)
    at_end(partial(remove_segments_of, os.getpid(), segment_folders()))
    key = handed_secret()
    wake = Wake()
    # Nobody is to blame for a store of files that is away: a worker asks again for minutes.
    control = {"encrypt": options.encrypt, "wake": wake, "waits": waits_for_servers}
    line = Line(key, options.generation, options.number, options.control, **control)
    worker = Worker(options, key, line, wake)
    try:
        worker.serve()
    except Exception as error:  # noqa: BLE001 - the border of the process: the coordinator is told
        _tell(line, error)
        return 1
    finally:
        line.close()
    worker.close()
    return 0


def _tell(line: Line, error: Exception) -> None:
    """What went wrong, to the coordinator: in one line, and in full for a file of the run."""
    text = traceback.format_exc()
    sys.stderr.write(text)
    first = (str(error).splitlines() or [""])[0]
    said = first if isinstance(error, HeterPSError) else f"{type(error).__name__}: {first}"
    notes = "; ".join(getattr(error, "__notes__", ()))
    about = {"problem": f"{said} ({notes})" if notes else said, "traceback": text}
    fault = isinstance(error, InputError)
    lost = type(error).__name__ in ("WorkerLostError", "WireError", "ServerError")
    line.send("failed", {**about, "input": fault, "follows": lost})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heterps.runtime.worker", description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--control", required=True, help="where the coordinator listens")
    listen = "ipc://path or tcp://host:*; the last is for the sums of its stage"
    parser.add_argument("--listen", required=True, action="append", help=listen)
    parser.add_argument("--host", default="127.0.0.1", help="of this machine, for gloo")
    parser.add_argument("--generation", type=int, default=0)
    parser.add_argument("--encrypt", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
