"""A process of Paddle's parameter-server training, server or worker as the launcher's environment
says; started by paddle_ps.py with a JSON file that says what to do.

Training has to go through a dataset: with plain feeds Paddle runs, but changes no parameter.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from contract import DENSE, DENSE_LR, DIM, HIDDEN, SLOT_IDS, SLOTS, SPARSE_LR
from paddle import static
from paddle.distributed import fleet

TABLE = "embedding"
TASK: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
# It is logged, and its own way to do so needs a build of protobuf that Python 3.11 does not have.
fleet.DistributedStrategy.__repr__ = lambda self: "strategy"


def main() -> None:
    paddle.enable_static()
    paddle.seed(0)
    fleet.init(is_collective=False)
    inputs, loss, total = build_model()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    strategy.sparse_table_configs = {TABLE: table_settings()}
    fleet.distributed_optimizer(paddle.optimizer.Adam(DENSE_LR), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        answer = json.dumps(train(inputs, total))
        unfinished = Path(TASK["result"] + ".part")
        unfinished.write_text(answer)
        unfinished.rename(TASK["result"])


def table_settings() -> dict[str, object]:
    """Adagrad with an accumulator for the first value of a row and one for the others."""
    settings: dict[str, object] = {}
    for part in ("embed_sgd_param", "embedx_sgd_param"):
        at = f"table_parameters.{TABLE}.accessor.{part}"
        settings[f"{at}.name"] = "SparseAdaGradSGDRule"
        settings[f"{at}.adagrad.learning_rate"] = SPARSE_LR
        settings[f"{at}.adagrad.initial_range"] = 0.01
    return settings


def build_model() -> tuple[list[Any], Any, Any]:
    ids = static.data("ids", [None, SLOTS], "int64")
    dense = static.data("dense", [None, DENSE], "float32")
    label = static.data("label", [None, 1], "int64")
    rows = static.nn.sparse_embedding(
        paddle.reshape(ids, [-1, 1]),
        [SLOTS * SLOT_IDS, DIM],
        param_attr=paddle.ParamAttr(name=TABLE),
    )
    x = paddle.concat([paddle.reshape(rows, [-1, SLOTS * DIM]), dense], axis=1)
    for size in HIDDEN:
        x = static.nn.fc(x, size, activation="relu")
    logits, target = static.nn.fc(x, 1), paddle.cast(label, "float32")
    loss = paddle.nn.functional.binary_cross_entropy_with_logits(logits, target)
    # Only persistable values can be seen from outside a worker's thread: so losses are summed up.
    total = static.create_global_var([1], 0.0, "float32", persistable=True, name="total_loss")
    paddle.assign(total + loss, output=total)
    return [ids, dense, label], loss, total


def train(inputs: list[Any], total: Any) -> dict[str, Any]:
    """The seconds that each file took, and the sum of the losses after it."""
    executor = static.Executor(paddle.CPUPlace())
    executor.run(static.default_startup_program())
    fleet.init_worker()
    seconds, losses = [], []
    for text in TASK["texts"]:
        dataset = paddle.distributed.InMemoryDataset()
        dataset.init(
            batch_size=TASK["batch"],
            thread_num=TASK["threads"],
            use_var=inputs,
            pipe_command="cat",
        )
        dataset.set_filelist([text])
        dataset.load_into_memory()
        started = time.perf_counter()
        executor.train_from_dataset(static.default_main_program(), dataset)
        seconds.append(time.perf_counter() - started)
        losses.append(float(np.array(static.global_scope().find_var(total.name).get_tensor())[0]))
        dataset.release_memory()
    fleet.stop_worker()
    return {"seconds": seconds, "losses": losses, "versions": {"paddle": paddle.__version__}}


if __name__ == "__main__":
    main()
