"""Samples of any format: decode(data, sample) makes a training example of a file's bytes. Here: WAV files, cut to one length.

    python audio_dataset.py DATA [--cache ROOT]
"""

import argparse
import array
import io
import wave

import torch

from lcache.torch import DataLoader, Dataset

LENGTH = 1600


def waveform(data, sample):
    """(16-bit samples as floats of one channel, label); sample also has the index and the name."""
    with wave.open(io.BytesIO(data)) as f:
        numbers = array.array("h", f.readframes(min(LENGTH, f.getnframes())))
    sound = torch.zeros(LENGTH)
    sound[: len(numbers)] = torch.tensor(numbers, dtype=torch.float32) / 32768
    return sound, sample.label


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--cache")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dataset = Dataset(args.data, waveform, cache=args.cache, ext=[".wav"])
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, seed=0)
    for epoch in range(args.epochs):
        energy = {name: 0.0 for name in dataset.classes}
        count = 0
        for sounds, labels in loader:
            count += len(labels)
            for power, label in zip(sounds.square().mean(1).tolist(), labels.tolist()):
                energy[dataset.classes[label]] += power
        print(f"epoch {epoch}: {count} sounds, {', '.join(f'{name} {power:.4f}' for name, power in energy.items())}", flush=True)


if __name__ == "__main__":
    main()
