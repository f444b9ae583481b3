"""HF Trainer over lcache, with a resume from its own checkpoint.

    python hf_trainer.py DATA OUT [--cache ROOT] [--resume]

Trainer builds and prepares its loader itself, so watch() wraps the finished loader.
"""

import argparse

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from lcache.torch import Dataset, watch


def example(data, sample):
    numbers = torch.frombuffer(bytearray(data), dtype=torch.uint8)[:32].float() / 255
    return {"inputs": nn.functional.pad(numbers, (0, 32 - len(numbers))), "labels": sample.label, "index": sample.index}


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(32, classes)

    def forward(self, inputs, labels, index):
        print(f"indices {index.tolist()}", flush=True)
        return {"loss": nn.functional.cross_entropy(self.layer(inputs), labels)}


class CachedTrainer(Trainer):
    def get_train_dataloader(self):
        return watch(super().get_train_dataloader())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--cache")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in OUT")
    parser.add_argument("--plain", action="store_true", help="read the files without lcache, for comparison")
    args = parser.parse_args()
    dataset = Dataset(args.data, example, cache=args.cache)
    classes = len(dataset.classes)
    if args.plain:
        dataset = [dataset[i] for i in range(len(dataset))]
    arguments = TrainingArguments(
        args.out, num_train_epochs=args.epochs, per_device_train_batch_size=8, save_steps=4, seed=3, use_cpu=True, report_to=[], disable_tqdm=True,
    )
    trainer = (Trainer if args.plain else CachedTrainer)(Classifier(classes), arguments, train_dataset=dataset)
    trainer.train(resume_from_checkpoint=args.resume)


if __name__ == "__main__":
    main()
