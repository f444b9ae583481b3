"""Several jobs on one server, each with its own orders, while others are killed."""

import pytest


@pytest.mark.parametrize("layout", ["log", "static"])
def test_jobs_are_killed(prepare, reader, small, draw, layout):
    """Four jobs, two with the same order. Two are killed at random points, and one restarts under its name. It and the others get every byte, and the source is not read again."""
    cache = prepare(small, batch_size=8, extra=["--layout", layout]).start()
    seeds = {"a": 1, "b": 1, "c": 2, "d": 3}
    jobs = {name: reader(cache) for name in seeds}
    for name, job in jobs.items():
        job.send("take_part", name=name, seed=seeds[name], epochs=4, report=1)
    killed = draw.sample(sorted(jobs), 2)
    for name in killed:
        for _ in range(draw.randrange(1, 100)):
            jobs[name].line(f"job {name}")
        jobs.pop(name).kill()
    again = killed[0]
    jobs[again] = reader(cache).send("take_part", name=again, seed=seeds[again], epochs=4)
    tokens = {name: job.answer() for name, job in jobs.items()}
    assert sorted(tokens.values()) == sorted(tokens)
    status = cache.status()
    by_id = {j["id"]: j for j in status["jobs"]}
    for name in tokens:
        assert by_id[name]["layout"] == layout
        assert by_id[name]["divergences"] == 0 and by_id[name]["corrupt_samples"] == 0
    assert status["totals"]["source_reads"] == 0, "all samples are in the cache"
