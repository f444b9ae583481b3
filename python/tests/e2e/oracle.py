"""Expected results, implemented independently from the definitions: torchvision's ImageFolder, and torch's DistributedSampler with its
MT19937. It is slow and simple, and uses no code of lcache.
"""

import functools
import os


def image_folder(root):
    """Paths and labels in ImageFolder's order: classes are the sorted top folders, files are sorted within each folder of the walk."""
    files = []
    for label, name in enumerate(sorted(e.name for e in os.scandir(root) if e.is_dir())):
        for folder, _, names in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            files += [(os.path.join(folder, n), label) for n in sorted(names)]
    return files


def read(path):
    with open(path, "rb") as f:
        return f.read()


def init_genrand(seed):
    """The state that torch.Generator.manual_seed makes. Only the low 32 bits of the seed count."""
    state = [seed & 0xFFFFFFFF]
    for j in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + j) & 0xFFFFFFFF)
    return state


def mt19937(seed):
    """Yields the generator's 32-bit words, endlessly."""
    s = init_genrand(seed)
    while True:
        for k in range(624):
            y = s[k] & 0x80000000 | s[(k + 1) % 624] & 0x7FFFFFFF
            s[k] = s[(k + 397) % 624] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
        for y in s:
            y ^= y >> 11
            y ^= y << 7 & 0x9D2C5680
            y ^= y << 15 & 0xEFC60000
            yield y ^ y >> 18


@functools.lru_cache(maxsize=64)
def randperm(n, seed):
    words = mt19937(seed)
    order = list(range(n))
    for i in range(n - 1):
        j = i + next(words) % (n - i)
        order[i], order[j] = order[j], order[i]
    return tuple(order)


def distributed_sampler(n, seed, epoch, world, rank, drop_last=False):
    """One rank's indices of one epoch."""
    order = list(randperm(n, seed + epoch))
    if drop_last:
        order = order[: n // world * world]
    else:
        total = -(-n // world) * world
        while len(order) < total:
            order += order[: total - len(order)]
    return order[rank::world]


def batches(order, batch_size):
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
