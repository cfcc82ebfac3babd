"""Frames and the agent's link: whatever comes, nothing breaks."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.obs.logging import logger
from headrace_agent.runner.agent_link import AgentLink
from headrace_agent.runner.frames import BadFrame, FrameReader, connect, pack, unpack
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.protocol import FullReport, Hello, Interrupt, KeptJob, NodeLease, Run, Started, ToRunner
from tests.unit.runner.builders import a_job, a_run

MESSAGES = [Hello("i"), a_run(0, "x", "ä" * 300, note=b"\0\xff"), Interrupt(a_job(), 5, "why"), NodeLease(2**60)]
DECODER = msgspec.msgpack.Decoder(ToRunner)


@given(st.lists(st.integers(1, 400), max_size=20))
def test_frames_come_out_whole_however_the_bytes_were_cut(cuts: list[int]) -> None:
    data = b"".join(pack(message) for message in MESSAGES)
    reader = FrameReader(10_000)
    found = []
    for cut in [*cuts, len(data)]:
        reader.feed(data[:cut])
        data = data[cut:]
        while (frame := reader.next()) is not None:
            found.append(unpack(frame, DECODER))

    assert found == MESSAGES


def test_a_frame_above_the_bound_is_refused_before_it_is_read() -> None:
    reader = FrameReader(1000)
    reader.feed((1001).to_bytes(4, "big"))

    with pytest.raises(BadFrame, match="1001 bytes, at most 1000"):
        reader.next()


@given(st.sampled_from(MESSAGES), st.data())
def test_never_does_a_damaged_frame_raise_anything_but_bad_frame(message: msgspec.Struct, data: st.DataObject) -> None:
    frame = bytearray(pack(message)[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = unpack(bytes(frame), DECODER)
    except BadFrame:
        return
    assert not isinstance(read, Run) or read.cpu >= 0


@pytest.mark.parametrize(
    "change", [{"cpu": -1}, {"memory_bytes": -1}, {"log_cap_bytes": -1}, {"argv": "x"}, {"environment": {"A": 1}}]
)
def test_amounts_below_nothing_and_other_types_are_refused(change: dict[str, object]) -> None:
    frame = pack(a_run(0, "x", **change))[4:]

    with pytest.raises(BadFrame):
        unpack(frame, DECODER)


def test_another_users_process_is_shown_out(tmp_path: Path) -> None:
    poll = Poll()
    link = AgentLink(str(tmp_path), poll, logger(), uid=os.getuid() + 1)
    stranger = connect(str(tmp_path))
    for fd, mask in poll.events(5):
        link.on_event(fd, mask)

    assert stranger.recv(10) == b""
    assert link.garbage == 1
    stranger.close()
    link.close()
    poll.close()


def test_an_agent_that_is_still_reading_a_large_picture_is_not_taken_for_a_stuck_one(tmp_path: Path) -> None:
    """A thousand jobs with commands of 120 kB: it was cut off before it had read it, again and again."""
    with closing(Poll()) as poll:
        link = AgentLink(str(tmp_path), poll, logger(), uid=os.getuid())
        with connect(str(tmp_path)) as agent:
            agent.sendall(pack(Hello("life-1")))
            for _ in range(2):
                for fd, mask in poll.events(5):
                    link.on_event(fd, mask)
            assert link.messages(9) == [Hello("life-1")]
            started = Started(a_job(), 1, 1, 1)
            picture = FullReport([KeptJob(a_run(0, "x" * 100 * 2**20), started)], [], "none", "", 1)

            link.send(picture)
            link.send(started)
            connected = link.connected
        link.close()

    assert connected
