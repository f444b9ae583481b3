"""Trains a small network on a folder of pictures: ordinary PyTorch, with the two lines that lcache changes.

    python train_imagefolder.py DATA [--cache ROOT] [--epochs N] [--plain]

--plain uses the two original lines instead; both print the same losses.
"""

import argparse
import logging

import torch
from torch import nn
from torchvision import transforms


def loaders(args, transform):
    if args.plain:
        import torchvision
        from torch.utils.data import DataLoader

        dataset = torchvision.datasets.ImageFolder(args.data, transform)
        generator = torch.Generator().manual_seed(args.seed)
        return dataset, DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, generator=generator)

    from lcache.torch import DataLoader, ImageFolder

    #                    torchvision.datasets.ImageFolder(args.data, transform)
    dataset = ImageFolder(args.data, transform, cache=args.cache)
    #      torch.utils.data.DataLoader(dataset, …, generator=torch.Generator().manual_seed(args.seed))
    return dataset, DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, seed=args.seed)


def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, classes),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--cache", help="root of the caches, on a local SSD")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # a line an epoch comes from lcache

    torch.manual_seed(args.seed)
    dataset, loader = loaders(args, transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()]))
    model = network(len(dataset.classes))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch} loss {total / len(dataset):.6f}", flush=True)


if __name__ == "__main__":
    main()
