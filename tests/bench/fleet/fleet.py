"""Thousands of simulated nodes in one process, each heartbeat sent when its agent's engine says so, and how late the answers come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Any, Final

from headrace.ids import TreeName
from headrace.resources import Resources
from headrace.runtime.clock import SystemClock
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import Heartbeat, JobKey, Nudge, Orders
from headrace.wire.nodes import Enrol, Enrolled
from headrace.wire.refusals import decode_answer
from tests.bench.fleet.connection import NodesConnection
from tests.bench.fleet.events import Events
from tests.bench.fleet.node import FleetNode
from tests.support.nats_server import NatsServer

__all__ = ["BETWEEN_WRITES_S", "HEARTBEAT_TIMEOUT_MS", "Fleet"]

#: As an agent's settings have them.
HEARTBEAT_TIMEOUT_MS: Final = 2_000
_ENROL_TIMEOUT_NS: Final = 5_000 * NS_PER_MS
_FIRST_ENROL_PAUSE_NS: Final = 250 * NS_PER_MS
_LONGEST_ENROL_PAUSE_NS: Final = 10_000 * NS_PER_MS
#: Events between two looks at what has arrived.
_EVENTS_IN_A_ROW: Final = 20
#: Messages due within this time are sent together, and count as late by it: a write for each would cost more than the messages.
BETWEEN_WRITES_S: Final = 0.002


class Fleet:
    """Every node of a tree, on one connection and one queue of events."""

    def __init__(self, server: NatsServer, tree: TreeName, nodes: int, total: Resources, mean_job_s: float) -> None:
        self._port = server.port
        self._tree = tree
        self._mean_job_s = mean_job_s
        self._clock = SystemClock()
        self._random = Random(1)
        self.nodes = {name: FleetNode(name, tree, total, self) for name in (f"n{number:05}" for number in range(nodes))}
        self.enrolled: set[str] = set()
        #: Milliseconds from the moment a heartbeat was due to its answer, in order of arrival.
        self.latencies_ms: list[float] = []
        #: From the moment a heartbeat was due to the moment it was sent: what this process itself adds.
        self.sent_late_ms: list[float] = []
        self.lost = 0
        self._ordered_s = self._clock.steady_s()
        self.refused = 0
        #: Jobs of which none ends before every place is taken, and for how long each runs from then on. None when that is so.
        self._first_jobs: list[tuple[FleetNode, JobKey, int]] | None = []
        #: While False jobs run on for ever.
        self.jobs_end = True
        #: Answered instead of the nodes.
        self.on_answer: Callable[[FleetNode, int, bytes], None] | None = None
        self._connection: NodesConnection
        self._in_flight: dict[str, tuple[int, int]] = {}
        #: Tries to enrol, of nodes that are not enrolled.
        self._enrolling: dict[str, int] = {}
        self._wakes_ns: dict[str, int] = {}
        self._events = Events()
        self._failed: BaseException | None = None

    @property
    def running_jobs(self) -> int:
        return sum(node.running_jobs for node in self.nodes.values())

    @property
    def jobs_ended(self) -> int:
        return sum(node.jobs_ended for node in self.nodes.values())

    @property
    def interrupted(self) -> int:
        return sum(node.jobs_interrupted for node in self.nodes.values())

    def newest_term(self) -> int:
        """The highest allocator's term that any node has obeyed."""
        return max(node.engine.term for node in self.nodes.values())

    def nodes_above(self, term: int) -> int:
        """Nodes that obey a higher term than this."""
        return sum(node.engine.term > term for node in self.nodes.values())

    def seconds_since_orders(self) -> float:
        """How long no answer has changed anything on a node."""
        return self._clock.steady_s() - self._ordered_s

    async def connect(self) -> None:
        self._connection = await NodesConnection.to(self._port, self._on_message, self._on_connection_lost)

    def close(self) -> None:
        self._connection.close()

    def start(self) -> None:
        """Starts all agents at once: nodes that come back after a power cut."""
        now = self._clock.now()
        for node in self.nodes.values():
            node.start(now)

    def let_first_jobs_end(self, end_every_s: float) -> None:
        """Every place is taken: a slow machine would never come so far if jobs ended meanwhile. On each node one ends in so long.

        How many jobs a node holds is known only now, since small ones come before large ones.
        """
        first_jobs, self._first_jobs = self._first_jobs or [], None
        longer = end_every_s * self.running_jobs / len(self.nodes) / self._mean_job_s
        self._mean_job_s *= longer
        for node, job, left_ns in first_jobs:
            self.end_after(node, job, int(left_ns * longer))

    def stop(self) -> None:
        """Nothing is due any more, and answers are not heard."""
        self._events.clear()
        self._in_flight.clear()

    def send(self, node: FleetNode, seq: int, heartbeat: bytes) -> None:
        """Sends a heartbeat as it is. The next `flush` takes it along."""
        reply_to = f"{subjects.inbox('node', node.name)}.{seq}"
        self._connection.request(subjects.heartbeat(self._tree, node.name), reply_to, heartbeat)

    def flush(self) -> None:
        self._connection.flush()

    async def run(self) -> None:
        """Does what is due, for ever."""
        while True:
            while due := self._events.take(self._clock.now().steady_ns, _EVENTS_IN_A_ROW):
                for at_ns, _, do, args in due:
                    do(at_ns, *args)
                self._connection.flush()
                await asyncio.sleep(0)
            if self._failed is not None:
                raise self._failed
            await asyncio.sleep(BETWEEN_WRITES_S)

    # --- what nodes ask for ---------------------------------------------------------------------------------------

    def send_heartbeat(self, node: FleetNode, heartbeat: Heartbeat, due_ns: int) -> None:
        now_ns = self._clock.now().steady_ns
        self.sent_late_ms.append((now_ns - due_ns) / NS_PER_MS)
        self._in_flight[node.name] = (heartbeat.seq, due_ns)
        self.send(node, heartbeat.seq, encode(heartbeat))
        self._at(now_ns + HEARTBEAT_TIMEOUT_MS * NS_PER_MS, self._on_silence, node, heartbeat.seq)

    def send_enrolment(self, node: FleetNode, at_ns: int) -> None:
        self.enrolled.discard(node.name)
        self._enrolling[node.name] = 0
        self._at(at_ns, self._enrol, node, 0)

    def wake_at(self, node: FleetNode, at_ns: int) -> None:
        if self._wakes_ns.get(node.name) != at_ns:
            self._wakes_ns[node.name] = at_ns
            self._at(at_ns, self._wake, node)

    def end_at(self, node: FleetNode, job: JobKey, at_ns: int) -> None:
        self._at(at_ns, self._end, node, job)

    def end_after(self, node: FleetNode, job: JobKey, left_ns: int) -> None:
        if self._first_jobs is None:
            self.end_at(node, job, self._clock.now().steady_ns + left_ns)
        else:
            self._first_jobs.append((node, job, left_ns))

    def job_ns(self) -> tuple[int, int]:
        """The time of a job that is over, and that is left.

        A job takes from half the mean to one and a half. Of the first ones a part is over, and long ones are more often found at
        work than short ones: so ends come evenly from the first second on. Were they drawn as the others are, a tenth more would end
        in the first minutes.
        """
        unit = self._random.random()
        is_first = self._first_jobs is not None
        whole_ns = int(self._mean_job_s * (math.sqrt(0.25 + 2 * unit) if is_first else 0.5 + unit) * 1e9)
        over_ns = int(whole_ns * self._random.random()) if is_first else 0
        return over_ns, whole_ns - over_ns

    # --- events ---------------------------------------------------------------------------------------------------

    def _at(self, at_ns: int, do: Callable[..., None], *args: Any) -> None:
        self._events.add(at_ns, do, args)

    def _wake(self, at_ns: int, node: FleetNode) -> None:
        if self._wakes_ns.get(node.name) == at_ns:
            del self._wakes_ns[node.name]
            node.on_time(self._clock.now(), at_ns)

    def _end(self, at_ns: int, node: FleetNode, job: JobKey) -> None:
        if self.jobs_end:
            node.on_job_over(job, self._clock.now(), at_ns)

    def _on_silence(self, _at_ns: int, node: FleetNode, seq: int) -> None:
        if self._in_flight.get(node.name, (0, 0))[0] == seq:
            self._lose(node, seq, self._clock.now())

    def _lose(self, node: FleetNode, seq: int, now: Moment) -> None:
        _, due_ns = self._in_flight.pop(node.name)
        self.lost += 1
        self.latencies_ms.append((now.steady_ns - due_ns) / NS_PER_MS)
        node.on_lost(seq, self._random.random(), now)

    def _enrol(self, _at_ns: int, node: FleetNode, attempt: int) -> None:
        if node.name in self.enrolled or self._enrolling.get(node.name) != attempt:
            return
        reply_to = f"{subjects.inbox('node', node.name)}.enrol"
        self._connection.request(subjects.enrol(node.name), reply_to, encode(Enrol(node.name, self._tree)))
        self._enrol_again(node, _ENROL_TIMEOUT_NS)

    def _enrol_again(self, node: FleetNode, after_ns: int) -> None:
        """After so long and a pause, which grows with each attempt."""
        attempt = self._enrolling[node.name] = self._enrolling[node.name] + 1
        pause_ns = min(_LONGEST_ENROL_PAUSE_NS, _FIRST_ENROL_PAUSE_NS << min(attempt - 1, 8))
        at_ns = self._clock.now().steady_ns + after_ns + int(pause_ns * (0.5 + self._random.random()))
        self._at(at_ns, self._enrol, node, attempt)

    # --- what nodes are told --------------------------------------------------------------------------------------

    def _on_message(self, subject: str, data: bytes) -> None:
        try:
            self._take(subject, data)
        except BaseException as error:
            self._failed = error

    def _on_connection_lost(self) -> None:
        self._failed = ConnectionError("the server has closed the connection of the fleet")

    def _take(self, subject: str, data: bytes) -> None:
        words = subject.split(".")
        if words[0] != "_INBOX":
            self.nodes[words[3]].on_nudge(decode(data, Nudge), self._clock.now())
        elif words[3] == "enrol":
            self._on_enrolled(self.nodes[words[2]], data)
        elif self.on_answer is not None:
            self.on_answer(self.nodes[words[2]], int(words[3]), data)
        else:
            self._on_orders(self.nodes[words[2]], int(words[3]), data)

    def _on_enrolled(self, node: FleetNode, data: bytes) -> None:
        if node.name in self.enrolled:
            return
        if data and isinstance(decode_answer(data, Enrolled), Enrolled):
            self.enrolled.add(node.name)
            node.on_enrolled(self._clock.now())
        else:
            self._enrol_again(node, 0)

    def _on_orders(self, node: FleetNode, seq: int, data: bytes) -> None:
        sent_seq, due_ns = self._in_flight.get(node.name, (0, 0))
        if sent_seq != seq:
            return
        now = self._clock.now()
        answer = decode_answer(data, Orders) if data else None
        if not isinstance(answer, Orders):
            self.refused += 1
            self._lose(node, seq, now)
            return
        del self._in_flight[node.name]
        if answer.start or answer.extend or answer.take_back:
            self._ordered_s = now.steady_s
        self.latencies_ms.append((now.steady_ns - due_ns) / NS_PER_MS)
        node.on_orders(answer, now)
        if node.engine.pulse.settled < seq:
            self.refused += 1
            node.on_lost(seq, self._random.random(), now)
