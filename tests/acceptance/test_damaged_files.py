"""`headrace up` over a state folder in which bits have flipped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.wire import subjects
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

BUCKETS = (
    *(subjects.NODE_LEASES_BUCKET, subjects.copies_of(subjects.POOLS_BUCKET)),
    *(subjects.TERMS_BUCKET, subjects.LEASES_BUCKET, subjects.CHECKPOINT_BUCKET),
)


def messages_of(up: Up, stream: str) -> Path:
    """The folder with the messages of a stream."""
    (folder,) = (up.state / "nats" / "jetstream").glob(f"*/streams/{stream}/msgs")
    return folder


def flip(up: Up, stream: str, at: int) -> None:
    """Flips one bit of a byte of a stream, counted from the end."""
    block = max(messages_of(up, stream).glob("*.blk"), key=lambda path: int(path.stem))
    data = bytearray(block.read_bytes())
    data[-at] ^= 4
    block.write_bytes(bytes(data))


@pytest.mark.long
@pytest.mark.parametrize("at", [12, 30])
def test_up_comes_up_with_everything_after_a_bit_flipped_in_its_small_buckets(at: int) -> None:
    """It gave up and told of a full disk."""
    with Up() as up:
        up.run("pool", "create", "research")
        up.run("run", "--id", "operation-1", "--wait", "--pool", "research", "--", "true")
        up.stop()
        for bucket in BUCKETS:
            flip(up, f"KV_{bucket}", at)

        up.start()

        assert "research" in up.run("pool", "list").stdout
        assert "completed" in up.run("op", "get", "operation-1").stdout
        up.run("run", "--id", "operation-2", "--wait", "--pool", "research", "--", "true")
        assert " ended " not in up.said()


def test_up_and_service_list_tell_of_acknowledged_entries_that_the_log_lost() -> None:
    with Up() as up:
        for number in range(4):
            up.run("run", "--id", f"operation-{number}", "--wait", "--", "true")
        up.stop()
        log = messages_of(up, subjects.STREAM)
        data = (log / "1.blk").read_bytes()
        (log / "1.blk").write_bytes(data[: data.index(b"operation-2")])
        (log / "index.db").unlink()
        # It would cover what the log has lost.
        shutil.rmtree(messages_of(up, f"KV_{subjects.CHECKPOINT_BUCKET}").parent)

        up.start()

        up.wait_said(r"admission: the log of operations lost at least \d+ acknowledged entries")
        assert "the log of operations lost at least" in up.run("service", "list", expect=1).stderr
        listed = up.run("op", "list").stdout
        assert "operation-1" in listed
        assert "operation-2" not in listed
