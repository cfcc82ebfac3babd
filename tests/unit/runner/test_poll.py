"""Events of descriptors whose numbers are used again at once."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace_agent.runner.host.poll import Poll


@pytest.fixture
def poll() -> Iterator[Poll]:
    with closing(Poll()) as poll:
        yield poll


def a_readable_pipe(poll: Poll) -> tuple[int, int]:
    ours, theirs = os.pipe()
    os.write(theirs, b"x")
    poll.register(ours, select.EPOLLIN)
    return ours, theirs


def test_an_event_of_a_closed_descriptor_is_not_one_of_the_next_with_its_number(poll: Poll) -> None:
    """Of 30,000 jobs on a busy machine, nine were killed right after their start."""
    pipes = dict(a_readable_pipe(poll) for _ in range(2))
    events = poll.events(0)
    first, _ = next(events)
    (second,) = set(pipes) - {first}

    poll.unregister(second)
    os.close(second)
    other = os.pipe()
    os.dup2(other[0], second)
    poll.register(second, select.EPOLLIN)

    assert list(events) == []
    os.write(other[1], b"x")
    assert {fd for fd, _ in poll.events(0)} == {first, second}
    for fd in {*other, *pipes, *pipes.values()}:
        os.close(fd)


def test_an_event_that_nobody_handles_comes_again(poll: Poll) -> None:
    pipe = a_readable_pipe(poll)
    found = [list(poll.events(0)) for _ in range(2)]

    assert found == [[(pipe[0], select.EPOLLIN)]] * 2
    for fd in pipe:
        os.close(fd)
