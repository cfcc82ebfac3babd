"""Headrace, as `headrace up` starts it. Run as a program, like every peer: see `peer.py`."""

from __future__ import annotations

import asyncio
import time

import headrace
from tests.bench.peers.peer import NOW, TRUE, main, report
from tests.support.headrace_up import Up


async def _measure(up: Up, jobs: int, starts: int) -> None:
    async with headrace.connect(state=up.state) as client:
        await (await client.run(TRUE, pool="measured")).wait()
        began = time.perf_counter()
        await (await client.run(TRUE, pool="measured", jobs=jobs)).wait()
        per_second = jobs / (time.perf_counter() - began)
        before_ns: dict[str, int] = {}
        for _ in range(starts):
            now_ns = time.time_ns()
            operation = await client.run(NOW, pool="measured")
            before_ns[operation.id] = now_ns
            await operation.wait()
    read_ns = {path.parent.name: int(path.read_text()) for path in up.state.rglob("*.stdout") if path.stat().st_size}
    report(per_second, [(read_ns[name] - now_ns) / 1e6 for name, now_ns in before_ns.items()])


def measure(jobs: int, starts: int) -> None:
    with Up(nodes=()) as up:
        asyncio.run(_measure(up, jobs, starts))


if __name__ == "__main__":
    main(measure)
