"""Kills a server at random moments while it packs samples that may replace each other. LCACHE_KILLS is twice the number of kills (default: 12), LCACHE_SEED the seed."""

import os
import shutil
import time

KILLS = int(os.environ.get("LCACHE_KILLS", "12")) // 2
OF_ONE = 4  # kills for one cache: after them nearly all samples are in packages, and the server has nothing left to pack


def test_kills_while_packing(prepare, small, draw):
    """The program continues to read. Every byte, the order and the substitutes are as before the kill. The budget holds, and lost samples are packed again."""
    packing = 0
    for first in range(0, KILLS, OF_ONE):
        cache = prepare(small, epochs=10_000, batch_size=8)
        packing += killed(cache, draw, min(OF_ONE, KILLS - first))
        shutil.rmtree(cache.cache)
    assert packing >= KILLS // 2, "too few of the kills met a server that had begun to pack"


def killed(cache, draw, kills):
    """Trains while the server is killed that number of times. Returns the number of kills after which the server had begun to pack."""
    requested, served = {}, {}
    packing = replaced = 0

    def train(job, epoch, batches):
        """Reads and observes the first batches of an epoch, or all."""
        count = 0
        for count, batch in enumerate(job.epoch(epoch), 1):
            indices, asked = list(batch.indices), list(batch.requested)
            cache.check(batch, indices)
            assert requested.setdefault((epoch, count), asked) == asked, f"epoch {epoch} batch {count - 1}: another order"
            assert served.setdefault((epoch, count), indices) == indices, f"epoch {epoch} batch {count - 1}: others are served"
            job.observe(indices, [(i * 37 + epoch * 11) % 101 / 10 for i in indices])
            if count == batches:
                break
        return count

    cache.start()
    with cache.connect() as job:
        job.importance("impact", substitute="low", s_share=0, l_depth=1, cache="500kB", warmup=1)
        whole = train(job, 0, None)
        job.end_epoch()
        for kill in range(kills):
            epoch = 1 + kill // 2  # so that two kills may follow in the same epoch
            train(job, epoch, draw.randrange(1, whole // 2))
            time.sleep(draw.uniform(0, 0.05))  # so that the kill comes at a random moment: packing continues between requests
            packing += job.stats()["jobs"][0]["importance"]["packages_written"] > 0
            cache.kill()
            assert cache.used() <= cache.report["budget_bytes"] + (1 << 20)  # the state of importance is not part of the budget
            cache.start()
            if kill % 2:
                train(job, epoch, None)
                job.end_epoch()
            now = job.stats()["jobs"][0]
            assert now["divergences"] == 0, f"kill {kill}"
            replaced += now["importance"]["substituted"]
        before = -1
        for epoch in range(1 + (kills + 1) // 2, 13 + (kills + 1) // 2):  # each requests half of all samples
            train(job, epoch, None)
            job.end_epoch()
            now = job.stats()["jobs"][0]["source_reads"]
            if now == before:
                break
            before = now
        assert now == before, "lost samples were not packed again"
    assert replaced > 0
    cache.stop()
    return packing
