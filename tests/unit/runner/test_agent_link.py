"""What the runner tells its agent: at once, or together with what follows where nobody waits for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.ids import AllocationId
from headrace.obs.logging import logger
from headrace.runtime.engine import NS_PER_MS
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_agent.runner.agent_link import AgentLink
from headrace_agent.runner.frames import pack
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.protocol import Ended, Hello, Recalled, Started, ToAgent
from tests.unit.runner.builders import OPERATION, a_job
from tests.unit.runner.harness import Agent

END = JobEnd(OPERATION, 0, 1, AllocationId("alloc-1"), JobResult.COMPLETED)
FOLLOWED = Ended(END, followed_by=a_job(1))
STARTED = Started(a_job(1), 100, 1, 1)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[AgentLink, Agent]]:
    """The two ends of a conversation."""
    with closing(Poll()) as poll:
        link = AgentLink(str(tmp_path), poll, logger(), os.getuid())
        agent = Agent(tmp_path)
        agent.say(Hello("incarnation-1"))
        while not link.connected:
            for fd, mask in poll.events(5):
                link.on_event(fd, mask)
            link.messages(1)
        yield link, agent
        agent.socket.close()
        link.close()


def sizes_told(both: tuple[AgentLink, Agent], *messages: ToAgent) -> list[int]:
    """Bytes that the agent can read right after these messages, 4 ms later and 5 ms later."""
    link, agent = both
    for message in messages:
        link.send(message)
    agent.socket.setblocking(False)
    sizes = []
    for now_ns in (0, 4 * NS_PER_MS, 5 * NS_PER_MS):
        link.flush(now_ns)
        try:
            sizes.append(len(agent.socket.recv(2**16)))
        except BlockingIOError:
            sizes.append(0)
    return sizes


def test_the_end_of_a_job_that_another_followed_waits_for_more(both: tuple[AgentLink, Agent]) -> None:
    size = len(pack(FOLLOWED)) + len(pack(STARTED))

    assert sizes_told(both, FOLLOWED, STARTED) == [0, 0, size]
    assert sizes_told(both, FOLLOWED, STARTED) == [0, 0, size]


@pytest.mark.parametrize("message", [Ended(END), STARTED, Recalled("alloc-1")])
def test_anything_else_goes_at_once_with_all_that_waits(both: tuple[AgentLink, Agent], message: ToAgent) -> None:
    assert sizes_told(both, message) == [len(pack(message)), 0, 0]

    sizes = sizes_told(both, FOLLOWED, Ended(END))
    assert sizes == [len(pack(FOLLOWED)) + len(pack(Ended(END))), 0, 0]
    assert sizes_told(both, FOLLOWED) == [0, 0, len(pack(FOLLOWED))]
