"""Dask distributed: a scheduler and two workers of one thread, each a process."""

from __future__ import annotations

import subprocess
import time

from distributed import Client, LocalCluster

from tests.bench.peers.peer import NOW, PLACES, TRUE, main, report


def run(words: list[str], _number: int) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def measure(jobs: int, starts: int) -> None:
    with (
        LocalCluster(n_workers=PLACES, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(run, [TRUE] * PLACES, range(-PLACES, 0), pure=False))
        began = time.perf_counter()
        client.gather(client.map(run, [TRUE] * jobs, range(jobs), pure=False))
        per_second = jobs / (time.perf_counter() - began)
        start_ms = []
        for number in range(starts):
            before_ns = time.time_ns()
            told = client.submit(run, NOW, number, pure=False).result()
            start_ms.append((int(told) - before_ns) / 1e6)
    report(per_second, start_ms)


if __name__ == "__main__":
    main(measure)
