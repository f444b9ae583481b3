"""lcache without PyTorch: batches of bytes as NumPy arrays for JAX, in jax.random.permutation's order, known to the server from the seed.

    python jax_iterator.py DATA [--cache ROOT]
"""

import argparse

import jax
import numpy

import lcache

WIDTH = 32


def batches(job, epoch):
    """(inputs, labels, indices) of each batch."""
    for batch in job.epoch(epoch):
        inputs = numpy.zeros((len(batch), WIDTH), numpy.float32)
        for row, view in zip(inputs, batch.samples):
            head = numpy.frombuffer(view, numpy.uint8)[:WIDTH]  # no copy: view is server memory
            row[: len(head)] = head / 255
        yield inputs, numpy.asarray(batch.labels), numpy.asarray(batch.indices)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--cache")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    parameters = {"fold_in": True, "partitionable": True}
    with lcache.open(args.data, args.cache, recipe="jax.permutation", seed=args.seed, epochs=args.epochs, batch_size=16, params=parameters) as job:
        mean = jax.jit(lambda inputs: inputs.mean())
        for epoch in range(args.epochs):
            order = []
            for inputs, _, indices in batches(job, epoch):
                mean(inputs)
                order += indices.tolist()
            key = jax.random.fold_in(jax.random.key(args.seed), epoch)
            same = order == jax.random.permutation(key, job.samples).tolist()
            print(f"epoch {epoch}: {len(order)} samples, the order is jax.random.permutation's: {same}", flush=True)


if __name__ == "__main__":
    main()
