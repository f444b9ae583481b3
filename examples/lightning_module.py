"""Lightning over lcache: the loader is lcache's, all else is Lightning's.

    python lightning_module.py DATA [--cache ROOT]

On several devices Lightning puts in a DistributedSampler; lcache's batch sampler goes along.
"""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torchvision import transforms

from lcache.torch import DataLoader, ImageFolder


class Classifier(LightningModule):
    def __init__(self, dataset):
        super().__init__()
        self.dataset = dataset
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, len(dataset.classes)))

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=16, shuffle=True, seed=0)

    def training_step(self, batch, _):
        pictures, labels = batch
        loss = nn.functional.cross_entropy(self.model(pictures), labels)
        self.total += loss.item() * len(labels)
        return loss

    def on_train_epoch_start(self):
        self.total = 0.0

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {self.total / len(self.dataset):.6f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--cache")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    seed_everything(0)
    transform = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])
    module = Classifier(ImageFolder(args.data, transform, cache=args.cache))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    Trainer(accelerator="cpu", devices=1, max_epochs=args.epochs, **quiet).fit(module)


if __name__ == "__main__":
    main()
