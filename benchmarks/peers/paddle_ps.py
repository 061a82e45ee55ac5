"""Paddle's parameter server: asynchronous, one server and one worker, each a process.

Writes the samples in Paddle's text format beside the data (once), launches paddle_worker.py twice
with `paddle.distributed.launch`, and hands on the worker's answer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contract import DENSE, SLOTS, Samples, answer, arguments

WORKER = Path(__file__).with_name("paddle_worker.py")
LIMIT_S = 600
SHORT = 4  # steps


def main() -> None:
    options = arguments(__doc__)
    texts = [text_file(options.data, *rows) for rows in parts(options)]
    task = {"texts": [str(path) for path in texts], "batch": options.batch}
    # One for each batch under way: 23.5k samples a second for the 15.1k of two threads a batch.
    task["threads"] = options.threads
    result = launch(task, options.threads)
    # A call to train begins with setting up threads and ends with waits of 0.1 s.
    _, short, long = result["seconds"]
    _, before, after = result["losses"]
    rate = options.steps * options.batch / (long - short)
    loss = (after - before) / (options.steps + SHORT)
    answer(rate, loss, options, result["versions"], servers=1, workers=1)


def parts(options: argparse.Namespace) -> list[tuple[int, int]]:
    """First sample and number of samples of three calls: the warm-up, a short one, and one that is
    longer by the steps to be timed.
    """
    steps, first, rows = (options.warmup, SHORT, options.steps + SHORT), 0, []
    for count in steps:
        rows.append((first * options.batch, count * options.batch))
        first += count
    return rows


def text_file(data: Path, first: int, count: int) -> Path:
    """A line per sample; each input as the number of its values, then the values."""
    path = data.with_suffix(f".{first}-{count}.txt")
    if not path.exists():
        samples = Samples.load(data)
        ids, size = samples.merged_ids, len(samples.labels)
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        with unfinished.open("w") as file:
            for row in (number % size for number in range(first, first + count)):
                sparse = " ".join(map(str, ids[row].tolist()))
                dense = " ".join(f"{value:.6g}" for value in samples.dense[row].tolist())
                label = int(samples.labels[row])
                file.write(f"{SLOTS} {sparse} {DENSE} {dense} 1 {label}\n")
        unfinished.rename(path)
    return path


def launch(task: dict[str, object], threads: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        result, settings = Path(folder) / "result.json", Path(folder) / "task.json"
        settings.write_text(json.dumps({**task, "result": str(result)}))
        places = [f"127.0.0.1:{port}" for port in free_ports(2)]
        command = [sys.executable, "-m", "paddle.distributed.launch", "--run_mode", "ps"]
        command += ["--servers", places[0], "--trainers", places[1], "--log_dir", folder]
        log = Path(folder) / "launch.log"
        environment = {**os.environ, **mkl_setting()}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "FLAGS_paddle_num_threads"), str(threads))
        with log.open("w") as out:
            process = subprocess.Popen(
                [*command, str(WORKER), str(settings)], env=environment, stdout=out, stderr=out
            )
            wait_for(result, process)
        if not result.exists():
            logs = [log, *sorted(Path(folder).glob("*log.0"))]
            sys.exit("\n".join(path.read_text() for path in logs)[-4000:])
        return dict(json.loads(result.read_text()))


def mkl_setting() -> dict[str, str]:
    """Its MKL takes an AMD processor for an old one unless told otherwise: 5 is AVX2, 7 AVX-512.
    At 4096 it had 55,600 samples a second with 7, 39,300 with 5 and 22,400 with neither on one that
    has AVX-512; an Intel one that is told 5 goes without AVX-512."""
    about = Path("/proc/cpuinfo").read_text()
    if "AuthenticAMD" not in about:
        return {}
    return {"MKL_DEBUG_CPU_TYPE": "7" if "avx512f" in about else "5"}


def wait_for(result: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the result is there; the server would go on for ever, also without its launcher."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    deadline = time.monotonic() + LIMIT_S
    try:
        while process.poll() is None and not result.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        process.terminate()
        process.wait()


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


if __name__ == "__main__":
    main()
