"""Trains a small network on a folder of pictures, and lets losses decide which samples an epoch has.

    python importance.py DATA [--method impact|shade|spider|none] [--weights] [--cache ROOT] [--epochs N]

none trains on every sample in every epoch. What the others choose, and when that pays, is in docs/importance.md.
"""

import argparse

import torch
from torch import nn
from torchvision import transforms

import lcache.torch


class Network(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(32, classes)

    def forward(self, pictures):
        embeddings = self.body(pictures)
        return self.head(embeddings), embeddings


def evaluate(model, loader):
    """The mean loss and the accuracy over all samples."""
    loss = right = 0
    with torch.no_grad():
        for pictures, labels, _ in loader:
            logits, _ = model(pictures)
            loss += lcache.torch.losses(logits, labels).sum().item()
            right += (logits.argmax(1) == labels).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--method", default="impact", choices=["impact", "shade", "spider", "none"])
    parser.add_argument("--weights", action="store_true", help="weight the losses, so that the gradient is that of all samples")
    parser.add_argument("--cache", help="root of the caches, on a local SSD")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    transform = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])
    dataset = lcache.torch.ImageFolder(args.data, transform, cache=args.cache, batch_size=args.batch_size, epochs=args.epochs, return_index=True)
    job = dataset.job
    if args.method == "none":
        order = {"shuffle": True, "seed": args.seed}
    else:
        options = {"s_share": 0} if args.method == "impact" else {}  # no samples to look at again
        job.importance(args.method, seed=args.seed, batch_size=args.batch_size, lag=0, **options)
        order = {"sampler": lcache.torch.ImportanceSampler(job)}
    loader = lcache.torch.DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers, **order)
    everything = torch.utils.data.DataLoader(dataset, batch_size=args.batch_size)

    model = Network(len(dataset.classes))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(args.epochs):
        trained = 0
        for pictures, labels, indices in loader:
            logits, embeddings = model(pictures)
            losses = lcache.torch.losses(logits, labels)
            if args.method == "none":
                loss = losses.mean()
            else:
                job.observe(indices, losses, embeddings if args.method == "spider" else None)
                loss = (losses * lcache.torch.weights(job, indices)).mean() if args.weights else losses.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained += len(labels)
        loss, accuracy = evaluate(model, everything)
        if args.method != "none":
            job.end_epoch(accuracy, loss)
        print(f"epoch {epoch}: {trained} samples trained, loss {loss:.6f}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
