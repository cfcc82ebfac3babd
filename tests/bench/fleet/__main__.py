"""Measures a whole fleet and prints a table: `python -m tests.bench.fleet`.

A real nats-server, all services as processes, and in this process a node for each host: the real engine of the agent beside jobs that
only take time. The exit status is 0 whatever the figures are: a busy machine is no error.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headrace.bus import Bus
from headrace.wire.figures import Histogram
from tests.bench.fleet.fleet import Fleet
from tests.bench.fleet.replay import MOST_P99_MS, highest_rates
from tests.bench.fleet.world import (
    NODE,
    Processes,
    ShareWatch,
    change_shares,
    configure,
    figures_of,
    services,
    serving,
    start_operations,
)
from tests.bench.registry import Figure, Measured, head_of_table, row_of_table, write_figures
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import TREE, a_bus

#: Between two ends of jobs on one node, for which a third of its heartbeats, one in five seconds, tells of one. It is less than 15 s:
#: jobs that were preempted begin anew, so that in the next minutes fewer end by themselves.
_END_EVERY_S = 13.0
_JOBS_OF_A_NODE = 20
#: Each has a 99th percentile of its own.
_SLICE_S = 10.0
_ROUNDS = 3
#: Two pools at least below each of ten: the weight of one alone would change no share.
_FEWEST_POOLS = 30
_PATIENCE_S = 600.0
#: With no job that ends: no answer has changed anything for so long, or it is as it is. Longer than the slowest pace, so that each
#: node was answered meanwhile.
_SETTLE_S = 16.0
_LONGEST_SETTLE_S = 120.0
#: Under load nodes are told to come later, and sooner again by a twentieth each second. Small jobs fill what large ones leave.
_LONGEST_STRETCHED_S = 120.0
_BETWEEN_LOOKS_S = 5.0
#: All room is taken when so few more start between two looks, as a part of those that run.
_HARDLY_ANY = 0.001
#: In a steady state so much more than what ends starts at most, and so much of it is preempted, as parts of what ends by itself.
_MOST_GROWTH = 0.05
_MOST_PREEMPTED = 0.1


class Bench:
    """One measurement from the first process to the last figure."""

    def __init__(self, options: argparse.Namespace, server: NatsServer, processes: Processes) -> None:
        self._nodes: int = options.nodes
        self._operations: int = options.operations
        self._pools: int = max(_FEWEST_POOLS, options.operations // 10)
        self._seconds: float = options.seconds
        self._server = server
        self._processes = processes
        self._fleet = Fleet(server, TREE, options.nodes, NODE, _END_EVERY_S * _JOBS_OF_A_NODE)
        self._began_s = time.monotonic()
        #: Everything that had not settled before the measurement, in words.
        self.unsettled: list[str] = []
        self.figures: dict[str, Figure] = {}

    async def run(self) -> None:
        """Brings the world up, measures its steady state, then its highest rate."""
        await configure(self._server, self._pools)
        async with a_bus(self._server, "service", "bench") as bus, a_bus(self._server, "user", "anna") as user:
            shares = ShareWatch(bus)
            async with asyncio.TaskGroup() as tasks:
                await self._fleet.connect()
                background = [tasks.create_task(job) for job in (self._fleet.run(), shares.run(), self._watch())]
                await self._bring_up(user)
                await self._settle(bus)
                changing = tasks.create_task(change_shares(user, self._pools))
                await self._measure(bus, shares)
                await self._recover()
                changing.cancel()
                await self._highest_rate()
                for task in background:
                    task.cancel()
        self._fleet.close()

    def _say(self, words: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.1f} s  {words}", flush=True)

    async def _until(self, what: Callable[[], bool], words: Callable[[], str]) -> None:
        said_s = 0.0
        async with asyncio.timeout(_PATIENCE_S):
            while not what():
                await asyncio.sleep(0.1)
                if time.monotonic() - said_s > 5:
                    said_s = time.monotonic()
                    self._say(words())
        self._say(words())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1)
            if ended := self._processes.ended():
                raise RuntimeError(f"ended by itself: {', '.join(ended)}")

    async def _bring_up(self, user: Bus) -> None:
        fleet = self._fleet
        await serving(user)
        self._say("all services serve")
        fleet.start()
        await self._until(
            lambda: len(fleet.enrolled) == self._nodes,
            lambda: f"{len(fleet.enrolled):,} of {self._nodes:,} nodes enrolled",
        )
        await start_operations(user, self._operations, self._pools)
        self._say(f"{self._operations:,} operations in {self._pools:,} pools started")
        places = int(0.95 * _JOBS_OF_A_NODE * self._nodes)
        await self._until(
            lambda: fleet.running_jobs >= places,
            lambda: (
                f"{fleet.running_jobs:,} of {places:,} jobs run; {fleet.jobs_ended:,} ended, {fleet.interrupted:,} of them "
                f"were asked to; {len(fleet.latencies_ms):,} heartbeats, {fleet.lost:,} lost"
            ),
        )
        await self._fill()
        # The services are measured, not this process's collector. It takes seconds, for which all heartbeats are late, so it comes
        # before anything settles.
        gc.collect()
        gc.freeze()
        gc.disable()
        fleet.let_first_jobs_end(_END_EVERY_S)

    async def _fill(self) -> None:
        """Waits until hardly any more jobs start. More that run later on would mean more ends than are to be measured."""
        async with asyncio.timeout(_PATIENCE_S):
            more = running = self._fleet.running_jobs
            while more > _HARDLY_ANY * running:
                await asyncio.sleep(_BETWEEN_LOOKS_S)
                more, running = self._fleet.running_jobs - running, self._fleet.running_jobs
                self._say(f"{running:,} jobs run, {more:,} more than {_BETWEEN_LOOKS_S:g} s before")

    async def _settle(self, bus: Bus) -> None:
        """Waits until heartbeats come as often as without the load of the first jobs and as much starts as ends, or for long.

        While the first jobs find their places many of them are preempted, so that more end than are to be measured.
        """
        began_s = time.monotonic()
        wanted_per_s = self._nodes / _END_EVERY_S
        while True:
            running, ended, look_s = self._fleet.running_jobs, self._fleet.jobs_ended, time.monotonic()
            await asyncio.sleep(_BETWEEN_LOOKS_S)
            stretch = (await figures_of(bus)).get("allocator", {}).get("pace_stretch", 1.0)
            took_s = time.monotonic() - look_s
            more_per_s = (self._fleet.running_jobs - running) / took_s
            ends_per_s = (self._fleet.jobs_ended - ended) / took_s
            words = (
                f"heartbeats come at a pace that is {stretch:.1f} times as long as without load, "
                f"{ends_per_s:,.0f} jobs a second end, {more_per_s:,.0f} more start than end"
            )
            self._say(words)
            is_even = abs(more_per_s) <= _MOST_GROWTH * wanted_per_s
            if stretch == 1.0 and is_even and ends_per_s <= (1 + _MOST_PREEMPTED) * wanted_per_s:
                return
            if time.monotonic() - began_s > _LONGEST_STRETCHED_S:
                self._note_unsettled(f"steady state: {words}")
                return

    def _note_unsettled(self, words: str) -> None:
        """What is measured next is not what it is called. The table says so, too."""
        self.unsettled.append(words)
        self._say(f"NOT SETTLED, measured all the same: {words}")

    async def _measure(self, bus: Bus, shares: ShareWatch) -> None:
        fleet = self._fleet
        pauses = await figures_of(bus)
        p99_ms, max_ms = [], []
        cpu_s, began_s = self._processes.cpu_s(), time.monotonic()
        published, ended, lost = (shares.snapshots, shares.operations), fleet.jobs_ended, fleet.lost
        running = fleet.running_jobs
        total = 0
        while time.monotonic() - began_s < self._seconds:
            fleet.latencies_ms.clear()
            fleet.sent_late_ms.clear()
            await asyncio.sleep(min(_SLICE_S, self._seconds))
            latencies_ms, late_ms = sorted(fleet.latencies_ms), sorted(fleet.sent_late_ms)
            total += len(latencies_ms)
            p99_ms.append(_percentile(latencies_ms, 0.99))
            max_ms.append(latencies_ms[-1])
            self._say(
                f"{len(latencies_ms) / _SLICE_S:,.0f} heartbeats a second; answered after {_percentile(latencies_ms, 0.5):.1f} ms, "
                f"99 % {p99_ms[-1]:.1f}, at most {max_ms[-1]:.0f}; of that the fleet itself 99 % {_percentile(late_ms, 0.99):.1f}, "
                f"at most {late_ms[-1]:.0f}; {fleet.lost - lost} lost"
            )
        took_s = time.monotonic() - began_s
        self.figures["fleet_p99_ms"] = Figure.of(p99_ms, "ms")
        self.figures["fleet_max_ms"] = Figure.of(max_ms, "ms")
        self._say(
            f"steady state: {total / took_s:,.0f} heartbeats, {(fleet.jobs_ended - ended) / took_s:,.0f} ends of jobs, "
            f"{(shares.snapshots - published[0]) / took_s:.1f} snapshots, "
            f"{(shares.operations - published[1]) / took_s:,.0f} changed shares of operations a second; "
            f"{(fleet.running_jobs - running) / took_s:,.0f} jobs a second more started than ended"
        )
        self._print_costs(cpu_s, took_s, pauses, await figures_of(bus))

    def _print_costs(
        self,
        before_s: dict[str, float],
        took_s: float,
        before: dict[str, dict[str, float | Histogram]],
        after: dict[str, dict[str, float | Histogram]],
    ) -> None:
        memory_mb = self._processes.memory_mb()
        print(f"\n{'process':12} {'cpu':>7} {'memory':>10} {'longest pause of the loop':>28}")
        for name, cpu_s in self._processes.cpu_s().items():
            pause = _longest_pause(before.get(name, {}), after.get(name, {}))
            print(f"{name:12} {(cpu_s - before_s[name]) / took_s:7.0%} {memory_mb[name]:7.0f} MB {pause:>28}")
        print(flush=True)

    async def _recover(self) -> None:
        """Kills the allocator, and waits until every node obeys the next one."""
        fleet, began_s, lost = self._fleet, time.monotonic(), self._fleet.lost
        term = fleet.newest_term()
        self._processes.restart("allocator")
        await self._until(
            lambda: fleet.nodes_above(term) == self._nodes,
            lambda: f"{fleet.nodes_above(term):,} of {self._nodes:,} nodes obey the allocator that took over",
        )
        took_s = time.monotonic() - began_s
        self._say(f"that took {took_s:.1f} s from the kill of the other; {fleet.lost - lost:,} heartbeats were lost")

    async def _highest_rate(self) -> None:
        self._fleet.jobs_end = False
        self._say("jobs end no more; the newest heartbeats are recorded when all have settled")
        began_s = time.monotonic()

        def has_settled() -> bool:
            waited_s = time.monotonic() - began_s
            return min(waited_s, self._fleet.seconds_since_orders()) > _SETTLE_S or waited_s > _LONGEST_SETTLE_S

        await self._until(
            has_settled,
            lambda: f"no answer has changed anything for {self._fleet.seconds_since_orders():.0f} s",
        )
        if self._fleet.seconds_since_orders() <= _SETTLE_S:
            self._note_unsettled(
                "highest rate: jobs still start, and each answer that starts one costs more than one that does not"
            )
        self._fleet.stop()
        highest = []
        async for is_highest, rate in highest_rates(self._fleet, self._processes.cpu_s, _ROUNDS):
            used = ", ".join(f"{name} {cpu_us:.0f}" for name, cpu_us in rate.cpu_us.items())
            words = (
                f"{rate.wanted:,.0f} heartbeats a second: {rate.answered:,.0f} answers, 99 % within {rate.p99_ms:.1f} ms, "
                f"us of cpu each: {used}"
            )
            self._say(f"the highest so far, {words}" if is_highest else words)
            if is_highest:
                highest.append(rate.wanted)
        self.figures["fleet_heartbeats_per_second"] = Figure.of(highest or [0.0], "heartbeats/s")


def _percentile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _longest_pause(before: dict[str, float | Histogram], after: dict[str, float | Histogram]) -> str:
    """The longest pause between two looks, as far as the sizes tell that are counted."""
    earlier, later = before.get("loop_pauses"), after.get("loop_pauses")
    if not isinstance(earlier, Histogram) or not isinstance(later, Histogram):
        return ""
    new = [now - then for now, then in zip(later.counts, earlier.counts, strict=True)]
    largest = max((place for place, count in enumerate(new) if count), default=0)
    return f"<= {later.bounds[largest]:g} ms" if largest < len(later.bounds) else f"> {later.bounds[-1]:g} ms"


def _table(options: argparse.Namespace) -> list[Measured]:
    size = f"{options.nodes:,} nodes, {options.operations:,} operations"
    measured = [
        (
            "fleet_heartbeats_per_second",
            f"of one allocator with {MOST_P99_MS:g} ms at 99 %, recorded ones, {size}",
            4_000,
        ),
        ("fleet_p99_ms", f"from when a heartbeat was due to its answer, 99 % of {_SLICE_S:g} s, {size}", 50),
        ("fleet_max_ms", f"the longest of {_SLICE_S:g} s", 1_000),
    ]
    return [Measured(name, what, goal, dict, name == measured[0][0]) for name, what, goal in measured]  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of steady state")
    parser.add_argument("--share-cores", action="store_true", help="the allocator has no core for itself")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what follows is cleaned up
    with (
        tempfile.TemporaryDirectory(prefix="headrace-fleet-") as folder,
        nats_server() as server,
        services(server, Path(folder), options.operations, share_cores=options.share_cores) as processes,
    ):
        bench = Bench(options, server, processes)
        try:
            asyncio.run(bench.run())
        except KeyboardInterrupt:
            return 130
    table = _table(options)
    width = max(len(each.name) for each in table)
    print(head_of_table(width))
    for each in table:
        print(row_of_table(each, bench.figures[each.name], width))
    for words in bench.unsettled:
        print(f"NOT SETTLED: {words}")
    write_figures(bench.figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
