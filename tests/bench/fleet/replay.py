"""The highest rate of one allocator: the newest heartbeat of every node, sent again and again at a fixed rate, whatever comes back.

Nothing waits for an answer, so that a slow allocator does not slow the measurement: latency counts from the moment a heartbeat was due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import msgspec

from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import Heartbeat, HeartbeatReason, Orders
from tests.bench.fleet.fleet import BETWEEN_WRITES_S, Fleet
from tests.bench.fleet.node import FleetNode

__all__ = ["MOST_P99_MS", "Rate", "highest_rates"]

#: A rate holds if 99 % of the answers come sooner.
MOST_P99_MS: Final = 50.0
_FIRST_RATE: Final = 2_000.0
_STEP: Final = 1.25
_FINE_STEP: Final = 1.08
#: Numbers of four bytes in msgpack, whatever stands there later, that nothing else in a heartbeat has.
_SEQ: Final = 0xF1EE7001
_APPLIED: Final = 0xF1EE7002
_RATE_S: Final = 4.0
_REST_S: Final = 1.0


class Rate(msgspec.Struct, frozen=True):
    """What came of one rate, heartbeats a second."""

    wanted: float
    answered: float
    p99_ms: float
    #: Of each process, for each heartbeat.
    cpu_us: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """True if nearly all answers came, and soon."""
        return self.p99_ms < MOST_P99_MS and self.answered > 0.99 * self.wanted


async def highest_rates(
    fleet: Fleet, cpu_s: Callable[[], Mapping[str, float]], rounds: int
) -> AsyncIterator[tuple[bool, Rate]]:
    """Yields every rate that was tried. True with the highest of a round that held. `cpu_s` is what each process has used."""
    replay = _Replay(fleet, cpu_s)
    fleet.on_answer = replay.on_answer
    rate, step = _FIRST_RATE, _STEP
    for _ in range(rounds):
        best: Rate | None = None
        while True:
            tried = await replay.at_rate(rate)
            yield False, tried
            await asyncio.sleep(_REST_S)
            if tried.holds:
                best, rate = tried, rate * step
            elif best is None and rate > 10:
                rate /= step**2
            elif step == _STEP:
                rate, step = rate / _STEP * _FINE_STEP, _FINE_STEP
            else:
                break
        if best is not None:
            yield True, best
        rate = (best or tried).wanted / _STEP


class _Replay:
    """Recorded heartbeats of all nodes, and what the answers to them took."""

    def __init__(self, fleet: Fleet, cpu_s: Callable[[], Mapping[str, float]]) -> None:
        self._fleet = fleet
        self._cpu_s = cpu_s
        self._recorded = [(node, _Recorded(node.heartbeat)) for node in fleet.nodes.values() if node.heartbeat]
        self._next = 0
        self._due_s: dict[tuple[str, int], float] = {}
        #: By node: the newest heartbeat that was answered without an order, which a recorded one can say it obeyed.
        self._applied = {node.name: recorded.seq for node, recorded in self._recorded}
        self._seq = dict(self._applied)
        self._latencies_ms: list[float] = []

    async def at_rate(self, rate: float) -> Rate:
        """Sends so many heartbeats a second for a while."""
        self._due_s.clear()
        self._latencies_ms = []
        began_s, cpu_s = time.monotonic(), self._cpu_s()
        count = int(rate * _RATE_S)
        sent = 0
        while sent < count:
            due = min(count, int((time.monotonic() - began_s) * rate) + 1)
            while sent < due:
                self._send(began_s + sent / rate)
                sent += 1
            self._fleet.flush()
            await asyncio.sleep(max(BETWEEN_WRITES_S, began_s + sent / rate - time.monotonic()))
        await asyncio.sleep(_REST_S)
        latencies_ms = sorted(self._latencies_ms) + [float("inf")] * (count - len(self._latencies_ms))
        cpu_us = {name: (now_s - cpu_s[name]) / count * 1e6 for name, now_s in self._cpu_s().items()}
        return Rate(rate, len(self._latencies_ms) / _RATE_S, latencies_ms[int(count * 0.99)], cpu_us)

    def _send(self, due_s: float) -> None:
        node, recorded = self._recorded[self._next]
        self._next = (self._next + 1) % len(self._recorded)
        self._seq[node.name] += 1
        seq = self._seq[node.name]
        self._due_s[node.name, seq] = due_s
        self._fleet.send(node, seq, recorded.again(seq, self._applied[node.name]))

    def on_answer(self, node: FleetNode, seq: int, data: bytes) -> None:
        """An answer came. Orders in it are not obeyed, and the next heartbeat says so."""
        due_s = self._due_s.pop((node.name, seq), None)
        if due_s is None:
            return
        self._latencies_ms.append((time.monotonic() - due_s) * 1e3)
        orders = decode(data, Orders)
        if not (orders.start or orders.extend or orders.take_back):
            self._applied[node.name] = seq


class _Recorded:
    """A heartbeat in bytes, of which only two numbers change: to encode all of it anew would take as long as to answer it."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.seq = heartbeat.seq
        seq, applied = _SEQ.to_bytes(4, "big"), _APPLIED.to_bytes(4, "big")
        data = encode(msgspec.structs.replace(heartbeat, seq=_SEQ, applied=_APPLIED, reason=HeartbeatReason.PERIOD))
        self._before, rest = data.split(seq)
        self._between, self._after = rest.split(applied)

    def again(self, seq: int, applied: int) -> bytes:
        """The same with these numbers."""
        parts = self._before, seq.to_bytes(4, "big"), self._between, applied.to_bytes(4, "big"), self._after
        return b"".join(parts)
