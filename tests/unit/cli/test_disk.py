"""A full disk of the state folder ends the waiting of a client, with words on what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec
import pytest

from headrace.bus import Bus, BusError, NoResponders, NotConnected, RequestTimeout
from headrace.client import Unanswered, find_place
from headrace.client.asking import Asker
from headrace.client.place import full_disk
from headrace.client.places.endpoint import ENDPOINT_FILE, Endpoint
from headrace.wire.codec import encode
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.refusals import NotRecorded, Refusal
from tests.support.clocks import HandClock

#: A file system on which there is never any room.
FULL = Path("/proc")


def full_disk_of(folder: Path, disk: Path) -> str:
    (folder / ENDPOINT_FILE).write_bytes(msgspec.json.encode(Endpoint("tls://127.0.0.1:1")))
    (folder / "nats").symlink_to(disk)
    return full_disk(find_place(state=folder))


def test_a_full_disk_is_told_with_the_folder(tmp_path: Path) -> None:
    assert full_disk_of(tmp_path, FULL) == f"the disk of {tmp_path / 'nats'} is full (0 KiB are free); free space on it"


def test_nothing_is_told_where_there_is_room_or_no_state_folder(tmp_path: Path) -> None:
    assert full_disk_of(tmp_path, tmp_path) == ""
    (tmp_path / "nats").unlink()
    assert full_disk(find_place(state=tmp_path)) == ""
    assert full_disk(find_place(url="tls://127.0.0.1:1")) == ""


class Refusing:
    """A bus on which nothing is recorded. Counts the requests."""

    def __init__(self, trouble: BusError | Refusal) -> None:
        self.trouble = trouble
        self.asked = 0

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        self.asked += 1
        if isinstance(self.trouble, BusError):
            raise self.trouble
        return encode(self.trouble)

    async def gather(self, subject: str, data: bytes, *, wait_s: float) -> list[bytes]:
        return []


async def ask(bus: Refusing, blocked: str) -> Unanswered:
    asker = Asker(cast("Bus", bus), HandClock(tick_s=1.0), str, 20.0, blocked=lambda: blocked)
    with pytest.raises(Unanswered) as raised:
        await asker.ask("pool.change", ChangePools([]), PoolPlan)
    return raised.value


@pytest.mark.parametrize("trouble", [NotRecorded(2000), RequestTimeout("no answer")])
async def test_a_request_that_a_full_disk_refuses_is_not_sent_again(trouble: BusError | Refusal) -> None:
    bus = Refusing(trouble)
    error = await ask(bus, "the disk is full")

    assert (error.why, error.maybe_done, bus.asked) == ("the disk is full", True, 1)


@pytest.mark.parametrize("trouble", [NoResponders("gone"), NotConnected()])
async def test_a_restart_is_waited_for_whatever_the_disk_is(trouble: BusError | Refusal) -> None:
    bus = Refusing(trouble)
    error = await ask(bus, "the disk is full")

    assert (error.maybe_done, bus.asked > 1) == (False, True)
    assert "the disk is full" not in str(error)


async def test_with_room_it_is_sent_again() -> None:
    bus = Refusing(NotRecorded(2000))
    await ask(bus, "")

    assert bus.asked > 1
