"""Small samples, such as tokens: a batch is made at once, and no Python runs for each sample. A small model learns which token comes next.

    python whole_batches.py DATA [--cache ROOT] [--way tensor|views|numpy|plain]

Each file of DATA is LENGTH tokens of int32. The ways are three of lcache's, and torch's own; all print the same losses.
"""

import argparse
import pathlib
import warnings

import torch
from torch import nn

import lcache
from lcache.torch import DataLoader, Dataset

LENGTH, TOKENS = 64, 100

warnings.filterwarnings("ignore", "The given buffer is not writable")  # nothing here writes to a batch's memory


def tensor(args):
    """The batch as one tensor. Samples have one size."""
    dataset = Dataset(args.data, decode="array", dtype="int32", shape=(LENGTH,), cache=args.cache)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, seed=args.seed)
    for _ in range(args.epochs):
        yield loader


def padded(views, columns):
    """A decoder of batches: views of shared memory, of any sizes, become one tensor. columns has indices, labels, lengths and names."""
    return nn.utils.rnn.pad_sequence([torch.frombuffer(view, dtype=torch.int32) for view in views], batch_first=True)


def views(args):
    """What a decoder makes of the batch."""
    dataset = Dataset(args.data, decode_batch=padded, cache=args.cache)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, seed=args.seed)
    for _ in range(args.epochs):
        yield loader


def numpy(args):
    """The batch as a numpy array, without lcache.torch."""
    order = {"recipe": "torch.dataloader", "params": {"generator": "explicit"}, "seed": args.seed}
    with lcache.open(args.data, args.cache, batch_size=args.batch_size, epochs=args.epochs, **order) as job:
        for epoch in range(args.epochs):
            yield (torch.from_numpy(batch.array("int32", (LENGTH,))) for batch in job.epoch(epoch))


def plain(args):
    """torch's loader over the files."""
    files = sorted(path for path in pathlib.Path(args.data).rglob("*") if path.is_file())
    generator = torch.Generator().manual_seed(args.seed)
    loader = torch.utils.data.DataLoader(files, args.batch_size, shuffle=True, generator=generator, collate_fn=lambda paths: padded([p.read_bytes() for p in paths], None))
    for _ in range(args.epochs):
        yield loader


def main():
    ways = {way.__name__: way for way in (tensor, views, numpy, plain)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--cache", help="root of the caches, on a local SSD")
    parser.add_argument("--way", default="tensor", choices=ways)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Embedding(TOKENS, 16), nn.Linear(16, TOKENS))
    optimizer = torch.optim.Adam(model.parameters(), 3e-2)
    for epoch, batches in enumerate(ways[args.way](args)):
        total = count = 0
        for tokens in batches:
            tokens = tokens.long()
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(tokens)
            count += len(tokens)
        print(f"epoch {epoch} loss {total / count:.6f}", flush=True)


if __name__ == "__main__":
    main()
