"""HyperQueue: its own server and one worker, through its Python package."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

from tests.bench.peers.peer import NOW, PLACES, TRUE, main, report


def measure(jobs: int, starts: int) -> None:
    with tempfile.TemporaryDirectory() as folder, LocalCluster(f"{folder}/server") as cluster:
        cluster.start_worker(WorkerConfig(cores=PLACES))
        client = cluster.client()
        client.wait_for_jobs([client.submit(_job(folder, TRUE, 1))])
        many = _job(folder, TRUE, jobs)
        began = time.perf_counter()
        client.wait_for_jobs([client.submit(many)])
        per_second = jobs / (time.perf_counter() - began)
        start_ms = []
        for number in range(starts):
            told = f"{folder}/now-{number}"
            single = Job(default_workdir=folder)
            single.program(NOW, stdout=told)
            before_ns = time.time_ns()
            client.wait_for_jobs([client.submit(single)])
            start_ms.append((int(Path(told).read_text()) - before_ns) / 1e6)
        report(per_second, start_ms)


def _job(folder: str, words: list[str], count: int) -> Job:
    job = Job(default_workdir=folder)
    for _ in range(count):
        job.program(words)
    return job


if __name__ == "__main__":
    main(measure)
