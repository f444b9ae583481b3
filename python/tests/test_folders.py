"""The folder of a source's cache is the same for lcache.open and `lcache run`. The tests of the latter have the same examples."""

import os

import pytest

from lcache._client.cachedirs import folders


@pytest.mark.parametrize(
    "source, listing, name",
    [
        ("/data/train", [], "train-198aece3"),
        ("/data/train", ["--ext=.jpg,.png"], "train-cabd17d3"),
        ("/data/train", ["--ext=jpg", "--flat"], "train-34cd0918"),
        ("/data/train", ["--flat"], "train-413d6274"),
        ("/data/train", ["--flat", "--labels=/data/train.csv"], "train-7bb474a8"),
        ("/", [], "root-8a5edab2"),
        ("/d/ä b", [], "ä_b-59a74698"),
        (os.fsdecode(b"/x/f\xff"), [], "f_-c9e270a2"),
        ("s3://bucket/imagenet/train", [], "train-416a9d1d"),
        ("tar:/data/train-{000..146}.tar", [], "train-_000..146_.tar-32d075a5"),
        ("tar:/d/a.tar", ["--part=png"], "a.tar-12ffc80c"),
        ("arrow:/d/x-*.arrow", ["--flat", "--columns=a,b", "--label-column=y"], "x-_.arrow-0b7cd7fc"),
        ("s3://bucket/train/", ["--s3-endpoint-url=http://minio:9000"], "train-7d45d937"),
        ("/x/" + "n" * 100, [], "n" * 80 + "-abcccf57"),
    ],
)
def test_the_folder_of_a_source(source, listing, name):
    assert folders(source, "/a,/b", listing) == (f"/a/{name}", f"/b/{name}")
