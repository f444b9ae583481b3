"""Mistakes that a type checker must report. `make lint` checks this file, and nothing runs it. An ignore comment without an error is an error."""

import lcache
import lcache.torch as lt


def misspelt() -> None:
    lcache.open("/data/train", bugdet="1GB")  # type: ignore[call-arg]
    lt.Dataset("/data/train", bugdet="1GB")  # type: ignore[call-arg]
    lt.ImageFolder("/data/train", transfrom=len)  # type: ignore[call-arg]
    lt.DataLoader([1], shufle=True)  # type: ignore[call-arg]


def of_other_types(job: lcache.Job, dataset: lt.Dataset[int]) -> None:
    number: int = dataset[0]
    text: str = dataset[0]  # type: ignore[assignment]
    lcache.open("/data/train", epochs="3")  # type: ignore[arg-type]
    job.get(7)  # type: ignore[arg-type]
    print(number, text)
