"""Admission after very many finished operations, beside admission after as many as it remembers.

    python -m tests.bench.long_life [OPERATIONS]

Every start and every end is recorded by a real admission on a real NATS server; ends are reported by an allocator that runs nothing. The
first figures are taken when admission remembers as many finished operations as it ever does, the others after OPERATIONS (1,000,000) more.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
import psutil

from headrace.bus import Bus
from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.resources import Resources
from headrace.runtime.role import role_of
from headrace.wire import ledger, subjects
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import ListOperations, OperationList, OperationSpec, StartAnswer, StartOperation
from headrace_admission.settings import AdmissionSettings
from tests.bench.admission import CAP, a_tree
from tests.support.nats_server import NatsServer, nats_server
from tests.support.stores import provision_stores
from tests.support.tree_services import TREE, a_bus, ask, stand_in_for

#: Operations of one batch: they are started, and then they end.
_BATCH: Final = 1_000
_IN_FLIGHT: Final = 64
_ENDS_TOGETHER: Final = 200
#: Finished operations before the first figures.
_FILLED: Final = 2 * AdmissionSettings().keep_finished
_STARTS: Final = 300
_LISTS: Final = 20
_RESTARTS: Final = 5
#: A figure may be larger by this factor after all operations.
_GOAL: Final = 1.1


class _Figures(msgspec.Struct):
    """What one look finds. Names are those of the table."""

    submit_ms: float
    list_ms: float
    restart_ms: float
    memory_mib: float
    disk_mib: float


class _Life:
    """An admission, a person who starts operations, and an allocator that ends them."""

    def __init__(self, server: NatsServer, config: Path, anna: Bus, allocator: Bus) -> None:
        self._server = server
        self._config = config
        self._anna = anna
        self._allocator = allocator
        self._process: anyio.abc.Process | None = None
        self._count = 0

    async def start(self) -> None:
        argv = [sys.executable, "-m", "headrace_admission", "--config", str(self._config)]
        self._process = await anyio.open_process(argv, stdout=None, stderr=None)

    async def end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        await self._process.wait()

    async def attach(self) -> None:
        await ask(self._allocator, subjects.ledger("attach"), ledger.Attach(TREE, 1), ledger.Attached)

    async def live(self, operations: int) -> None:
        """Let this number of operations start and end."""
        began = time.monotonic()
        for done in range(0, operations, _BATCH):
            names = [self._next() for _ in range(min(_BATCH, operations - done))]
            await self._start_all(names)
            await self._end_all(names)
            if done % (50 * _BATCH) == 0:
                print(f"{done:,} of {operations:,} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    async def figures(self) -> _Figures:
        submits = []
        for _ in range(_STARTS):
            name = self._next()
            began = time.perf_counter()
            await self._start_all([name])
            submits.append((time.perf_counter() - began) * 1e3)
            await self._end_all([name])
        lists = [await self._list_ms() for _ in range(_LISTS)]
        assert self._process is not None
        memory_bytes = psutil.Process(self._process.pid).memory_info().rss
        restarts = [await self._restart_ms() for _ in range(_RESTARTS)]
        return _Figures(
            submit_ms=statistics.median(submits),
            list_ms=statistics.median(lists),
            restart_ms=statistics.median(restarts),
            memory_mib=memory_bytes / 2**20,
            disk_mib=_size_bytes(self._server.folder / "store") / 2**20,
        )

    async def _list_ms(self) -> float:
        began = time.perf_counter()
        await ask(self._anna, subjects.user("anna", "op.list"), ListOperations(), OperationList)
        return (time.perf_counter() - began) * 1e3

    async def _restart_ms(self) -> float:
        """Return the time from the start of a process until it has recorded a start."""
        await self.end()
        began = time.perf_counter()
        await self.start()
        name = self._next()
        await self._start_all([name])
        taken = (time.perf_counter() - began) * 1e3
        await self.attach()
        await self._end_all([name])
        return taken

    def _next(self) -> OperationId:
        self._count += 1
        return OperationId(f"operation-{self._count:08}")

    async def _start_all(self, names: Sequence[OperationId]) -> None:
        spec = OperationSpec(PoolName("work"), ["python", "work.py"], 1, Resources(user_slots=1, cpu=100))
        waiting = iter(names)

        async def one_after_another() -> None:
            for name in waiting:
                answer = await ask(
                    self._anna, subjects.user("anna", "op.start"), StartOperation(name, spec), StartAnswer
                )
                assert isinstance(answer, StartAnswer), answer

        async with anyio.create_task_group() as tasks:
            for _ in range(min(_IN_FLIGHT, len(names))):
                tasks.start_soon(one_after_another)

    async def _end_all(self, names: Sequence[OperationId]) -> None:
        for first in range(0, len(names), _ENDS_TOGETHER):
            now_ms = time.time_ns() // 1_000_000
            ends = [
                JobEnd(
                    name,
                    0,
                    1,
                    AllocationId("1-1"),
                    JobResult.COMPLETED,
                    0,
                    started_at_ms=now_ms,
                    ended_at_ms=now_ms + 9,
                )
                for name in names[first : first + _ENDS_TOGETHER]
            ]
            report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end) for end in ends])
            await ask(self._allocator, subjects.ledger("report"), report, ledger.ReportAnswer)


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


async def measure(operations: int) -> tuple[_Figures, _Figures]:
    """Return the figures before and after this number of operations."""
    with nats_server() as server, tempfile.TemporaryDirectory() as folder:
        await provision_stores(server.url)
        async with a_bus(server, "service", "configuring") as bus:
            bucket = await bus.key_value(subjects.POOLS_BUCKET, history=64)
            await bucket.put(TREE, msgspec.json.encode(a_tree()))
        config = Path(folder) / "services.toml"
        config.write_text(
            f'[common]\nnats_url = "{server.url}"\nlog_level = "warning"\n[admission]\nmax_operation_count = {CAP}\n',
            encoding="utf-8",
        )
        async with a_bus(server, "user", "anna") as anna, a_bus(server, "service", "allocator") as allocator:
            await stand_in_for(allocator, role_of("allocator", TREE))
            life = _Life(server, config, anna, allocator)
            await life.start()
            try:
                await life.attach()
                await life.live(_FILLED)
                before = await life.figures()
                await life.live(operations)
                return before, await life.figures()
            finally:
                await life.end()


def main() -> None:
    operations = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    before, after = anyio.run(measure, operations)
    print(f"{'figure':12} {f'after {_FILLED:,}':>14} {f'{operations:,} later':>18} {'ratio':>7}   goal: {_GOAL}")
    for name in before.__struct_fields__:
        first, last = getattr(before, name), getattr(after, name)
        print(f"{name:12} {first:14.2f} {last:18.2f} {last / first:7.3f}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
