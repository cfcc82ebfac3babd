"""A full disk of the state folder is said to whoever could not do what they wanted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.client import Refused, Unanswered
from headrace.client.places.endpoint import ENDPOINT_FILE, Endpoint
from headrace.wire.refusals import NotFound, NotRecorded
from headrace_cli import session
from headrace_cli.session import Common, say_if_full, talk
from headrace_cli.show.screen import Screen
from headrace_cli.up.state_folder import free_bytes

#: A file system on which there is never any room.
FULL = Path("/proc")


def a_state_folder(folder: Path, disk: Path) -> Common:
    (folder / ENDPOINT_FILE).write_bytes(msgspec.json.encode(Endpoint("nats://127.0.0.1:1")))
    (folder / "nats").symlink_to(disk)
    return Common(state=folder)


def test_the_room_of_a_folder_that_is_gone_is_not_known(tmp_path: Path) -> None:
    """`up` looks at it every second: whoever removes it must not end everything."""
    assert free_bytes(tmp_path / "gone") is None
    assert free_bytes(FULL) == 0
    assert (free_bytes(tmp_path) or 0) > 0


def test_a_full_disk_is_told_with_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say_if_full(a_state_folder(tmp_path, FULL), Screen())

    assert f"the disk of {tmp_path / 'nats'} is full" in capsys.readouterr().err.replace("\n", " ")


def test_nothing_is_told_where_there_is_room_or_no_state_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say_if_full(a_state_folder(tmp_path, tmp_path), Screen())
    say_if_full(Common(state=tmp_path / "nowhere"), Screen())

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (Refused(NotRecorded(2000)), True),
        (Unanswered("op.start", 9, "no answer", maybe_done=True), True),
        (Refused(NotFound("pool", "x")), False),
    ],
)
def test_whoever_was_refused_for_want_of_a_record_is_told(
    error: Exception,
    *,
    is_told: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(**_options: object) -> None:
        raise error

    monkeypatch.setattr(session, "connect", connect)
    with pytest.raises(type(error)):
        talk(a_state_folder(tmp_path, FULL), lambda _client, _screen: pytest.fail("connected"))

    assert ("is full" in capsys.readouterr().err) is is_told
