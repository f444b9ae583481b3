"""Two epochs of a folder through lcache.torch: epoch.py DATA CACHE. Each sample's bytes are compared with its file, and the order with torch's own.

With LCACHE_SOCKET the samples come from that server, else from one that lcache starts.
"""

import sys
from pathlib import Path

import torch

import lcache
from lcache.torch import DataLoader, Dataset

data, cache = Path(sys.argv[1]), sys.argv[2]
files = sorted(path for path in data.glob("*/*"))


def decode(content, sample):
    return sample[0], content == files[sample[0]].read_bytes()


def main():
    dataset = Dataset(str(data), decode=decode, cache=cache)
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=0, seed=0)
    generator = torch.Generator().manual_seed(0)
    theirs = torch.utils.data.DataLoader(range(len(files)), batch_size=16, shuffle=True, generator=generator)
    for epoch in range(2):
        order = []
        for indices, right in loader:
            assert all(right), "bytes differ from the file's"
            order += indices.tolist()
        assert order == torch.cat(list(theirs)).tolist(), f"epoch {epoch}: another order than torch's"
    print(f"two epochs of {len(files)} samples, exact, by {lcache.__file__} and {lcache.program()}")


if __name__ == "__main__":
    main()
