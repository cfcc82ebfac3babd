"""Ray: one node with two processors."""

from __future__ import annotations

import subprocess
import time

import ray

from tests.bench.peers.peer import NOW, PLACES, TRUE, main, report


def run(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def measure(jobs: int, starts: int) -> None:
    ray.init(num_cpus=PLACES, include_dashboard=False, log_to_driver=False)
    task = ray.remote(num_cpus=1)(run)
    ray.get([task.remote(TRUE) for _ in range(PLACES)])
    began = time.perf_counter()
    ray.get([task.remote(TRUE) for _ in range(jobs)])
    per_second = jobs / (time.perf_counter() - began)
    start_ms = []
    for _ in range(starts):
        before_ns = time.time_ns()
        told = ray.get(task.remote(NOW))
        start_ms.append((int(told) - before_ns) / 1e6)
    ray.shutdown()
    report(per_second, start_ms)


if __name__ == "__main__":
    main(measure)
