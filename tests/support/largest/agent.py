"""The largest messages of an agent: heartbeats of a thousand full allocations, with thousands of ends that nobody records."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headrace.ids import AllocationId, Incarnation
from headrace.resources import MOST_OF_A_NODE, Resources
from headrace.runtime.engine import Moment, Outcome
from headrace.wire.heartbeat import (
    LONGEST_ACCOUNT,
    LONGEST_GPU_NAME,
    MOST_GPUS,
    MOST_SESSION_SPANS,
    Extend,
    Heartbeat,
    JobEnd,
    JobResult,
    JobSlot,
    JobSpec,
    Orders,
    Start,
)
from headrace.wire.sessions import SessionTurn
from headrace_agent.effects import AgentEffect, Beat, Identity, SendToRunner, Trouble
from headrace_agent.engine import MOST_UNRECORDED_ENDS, AgentEngine
from headrace_agent.host.gpus import HostGpus, offered_gpus
from headrace_agent.runner.frames import pack
from headrace_agent.runner.protocol import LARGEST_REQUEST_BYTES, Ended, FullReport, Run, Started
from headrace_agent.session_spans import AnsweredTurn
from tests.support.largest.names import FAT, LONGEST_START, TREE, a_node, an_operation

__all__ = ["LargeNode", "heartbeats"]

SLOTS = 1_000
_ROUND_NS = 10**10


class LargeNode:
    """An agent on a large host; its runner starts what it is told to."""

    def __init__(self) -> None:
        room = msgspec.structs.replace(MOST_OF_A_NODE, user_slots=SLOTS, gpu=MOST_GPUS)
        gpus = offered_gpus(HostGpus(), [f"{number:0{LONGEST_GPU_NAME}}" for number in range(MOST_GPUS)], None)
        self.identity = Identity(a_node(1), TREE, Incarnation("9" * 20), room, {}, 8_000, gpus=gpus)
        self.engine = AgentEngine(self.identity)
        self.now = Moment(2**60, 2**50)
        self.made = 0
        self.term = 1
        self.beats: list[Heartbeat] = []
        self.do(self.engine.on_start(self.now))
        self.do(self.engine.on_runner(FullReport([], [], "rlimit", "", 2**22), self.now))
        self.do(self.engine.on_enrolled(self.now))

    def do(self, outcome: Outcome[None, AgentEffect]) -> None:
        for effect in outcome.effects:
            if isinstance(effect, Beat):
                self.beats.append(effect.heartbeat)
            elif isinstance(effect, SendToRunner) and isinstance(effect.message, Run):
                assert len(pack(effect.message)) <= LARGEST_REQUEST_BYTES
                job = effect.message.job
                started = Started(job, 2**22, self.now.wall_ms, self.now.steady_ns, account="u" * LONGEST_ACCOUNT)
                self.do(self.engine.on_runner(started, self.now))

    def answer(self, starts: list[Start], extends: list[Extend]) -> Heartbeat:
        """The heartbeat after one that was answered with these orders."""
        beat = self.beats[-1]
        return self.obey(Orders(beat.node, beat.incarnation, beat.seq, self.term, 1_000, starts, extends))

    def obey(self, orders: Orders) -> Heartbeat:
        """The heartbeat after these orders."""
        self.do(self.engine.on_orders(orders, self.now))
        self.now = Moment(self.now.steady_ns + _ROUND_NS, self.now.wall_ms + 10**4)
        self.do(self.engine.on_tick(self.now))
        assert self.engine.check() == []
        return self.beats[-1]

    def start(self, slots: int) -> Start:
        """An allocation of an operation of its own, with a large command for every hundredth."""
        self.made += 1
        name = an_operation(self.made)
        spec = JobSpec(name, ["x" * (120_000 if self.made % 100 == 0 else 1)], job_count=2**30)
        given = [JobSlot(2**30 + place, 2**30) for place in range(slots)]
        room = Resources(
            user_slots=1,
            cpu=MOST_OF_A_NODE.cpu // SLOTS,
            gpu=int(self.made <= MOST_GPUS),
            memory=MOST_OF_A_NODE.memory // SLOTS,
        )
        return Start(AllocationId(f"{self.made:064}"), name, room, given, spec, record=LONGEST_START)


def heartbeats() -> Iterator[msgspec.Struct]:
    """Heartbeats of a node whose jobs end, and of one that gives all back."""
    yield from _heartbeats_of_ends()
    yield from _heartbeats_of_given_back()


def _heartbeats_of_given_back() -> Iterator[msgspec.Struct]:
    """Allocations until the node takes no more, half of them ended before they began, with reasons of letters of four bytes each."""
    node = LargeNode()
    while not node.engine.void:
        if node.made == SLOTS // 2:
            node.do(node.engine.on_trouble(Trouble.LOGS, FAT * 4096, node.now))
        yield node.answer([node.start(slots=1) for _ in range(50)], [])
    assert sum(bool(one.given_back_for) for one in node.engine.held.by_id.values()) > SLOTS // 2
    key = next(iter(node.engine.held.by_job))
    end = JobEnd(
        key.operation, key.index, key.attempt, AllocationId(""), JobResult.FAILED, 1, None, FAT * 4096, FAT * 4096
    )
    node.do(node.engine.on_runner(Ended(end), node.now))
    beat = node.answer([], [])
    assert len(beat.ends) == 1
    yield beat


def _heartbeats_of_ends() -> Iterator[msgspec.Struct]:
    """Allocations as many as there is room for, filled up slot by slot, then all their jobs end with long last words."""
    node = LargeNode()
    for _ in range(SLOTS // 50):
        yield node.answer([node.start(slots=10) for _ in range(50)], [])
    for number, key in enumerate(list(node.engine.held.by_job)[:MOST_SESSION_SPANS]):
        turn = SessionTurn(f"{number:032x}", key.operation, key.index, 1)
        node.do(node.engine.on_session(AnsweredTurn(turn, FAT * 200, is_over=False), node.now))
    beat = node.answer([], [])
    assert beat.sessions
    yield beat
    known = [AllocationId(f"{number:064}") for number in range(1, SLOTS + 1)]
    for first in range(11, 64, 9):
        more = [JobSlot(place, 2**30) for place in range(2**30 + first, 2**30 + first + 9)]
        for place in range(0, SLOTS, 100):
            yield node.answer([], [Extend(one, more) for one in known[place : place + 100]])
    node.do(node.engine.on_trouble(Trouble.LOGS, FAT * 4096, node.now))
    # A new allocator is told how they came about.
    node.term = 2
    while len(node.engine.held.ends) < MOST_UNRECORDED_ENDS and node.engine.held.by_job:
        for key, allocation in list(node.engine.held.by_job.items()):
            words = FAT * 4096 if key.index % 7 == 0 else "e" * 2_000
            end = JobEnd(key.operation, key.index, key.attempt, allocation.id, JobResult.FAILED, 1, None, words, words)
            node.do(node.engine.on_runner(Ended(end), node.now))
        yield node.answer([], [])
