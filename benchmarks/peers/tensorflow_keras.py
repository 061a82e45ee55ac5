"""TensorFlow in one process: a Keras tower with Keras' Adam, one merged table, sparse Adagrad.

The table's update is TensorFlow's own sparse kernel: the Adagrad of Keras 3 goes through the whole
accumulator in every step. Duplicate ids are summed first, as Keras' optimizers did before.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from contract import (
    DENSE,
    DENSE_LR,
    DIM,
    HIDDEN,
    SLOT_IDS,
    SLOTS,
    SPARSE_EPS,
    SPARSE_LR,
    Samples,
    Step,
    answer,
    arguments,
    measure,
)


def make_tower() -> keras.Model:
    hidden = [keras.layers.Dense(size, activation="relu") for size in HIDDEN]
    inputs = keras.Input((SLOTS * DIM + DENSE,))
    return keras.Sequential([inputs, *hidden, keras.layers.Dense(1)])


class Table:
    """Rows as a variable, with an accumulator of the same shape."""

    def __init__(self) -> None:
        block = np.random.default_rng(0).uniform(-0.01, 0.01, (SLOT_IDS, DIM)).astype(np.float32)
        self.rows = tf.Variable(tf.tile(block, [SLOTS, 1]))
        self.sums = tf.Variable(tf.zeros_like(self.rows))

    def apply(self, gradient: tf.IndexedSlices) -> tf.Operation:
        ids, inverse = tf.unique(gradient.indices)
        summed = tf.math.unsorted_segment_sum(gradient.values, inverse, tf.size(ids))
        return tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=self.rows.handle,
            accum=self.sums.handle,
            lr=SPARSE_LR,
            epsilon=SPARSE_EPS,
            grad=summed,
            indices=ids,
        )


def make_step(samples: Samples, size: int) -> Step:
    table, tower = Table(), make_tower()
    adam = keras.optimizers.Adam(DENSE_LR)
    adam.build(tower.trainable_variables)
    batches = [
        tuple(map(tf.constant, (part.merged_ids.reshape(-1), part.dense, part.labels)))
        for part in samples.batches(size)
    ]

    @tf.function
    def train(ids: tf.Tensor, dense: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = tf.gather(table.rows, ids)
            features = tf.concat([tf.reshape(rows, [size, SLOTS * DIM]), dense], axis=1)
            logits = tf.squeeze(tower(features, training=True), axis=1)
            entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(entropy)
        sparse, *gradients = tape.gradient(loss, [table.rows, *tower.trainable_variables])
        table.apply(sparse)
        adam.apply(gradients)
        return loss

    return lambda number: train(*batches[number % len(batches)])


def main() -> None:
    options = arguments(__doc__)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
    keras.utils.set_random_seed(0)
    rate, loss = measure(make_step(Samples.load(options.data), options.batch), options)
    answer(rate, loss, options, {"tensorflow": tf.__version__, "keras": keras.__version__})


if __name__ == "__main__":
    main()
