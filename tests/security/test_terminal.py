"""What a job writes commands no reader's terminal, and what goes to a file is what the job wrote, byte by byte."""

from __future__ import annotations

import base64
import json
import os
import pty
import sys
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import msgspec
import pytest
from rich.text import Text

from headrace.client import LogLine
from headrace.client.logs import _Log
from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.wire.happenings import OperationStep, recorded
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import JobsEnded, LoggedEnd, Published
from headrace.wire.logs import LogChunk, LogStream
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import OperationExplanation, OperationState
from headrace_cli.command_line import run_command
from headrace_cli.commands.operations.event_lines import happening_words, history_table
from headrace_cli.commands.operations.explain_page import sentence
from headrace_cli.commands.operations.job_output import print_output, save_output
from headrace_cli.commands.operations.op import print_file
from headrace_cli.commands.operations.tables import failure_lines
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen, harmless, harmless_json
from tests.unit.cli.test_render import a_view, shown

#: A title, a clipboard, a screen cleared, an answer that is typed, a hyperlink, hidden letters, C1, bidi, a line that is overwritten.
COMMANDS = [
    "\x1b]0;mine\x07",
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1b[2J\x1b[H",
    "\x1b[6n",
    "\x1bP$q\x1b\\",
    "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "\x1b[8mhidden",
    "\x1b[5mblinks",
    "\x1b[1;8mhidden too",
    "\x1b[38;5;8;8mhidden at last",
    "\x9b2J",
    "\x9d0;mine\x9c",
    "abc\u202edef",
    "shown\rhidden",
    "\x08\x08\x08",
    "\x0e\x0f\x05\x7f",
]
COLOURS = ["\x1b[31mred\x1b[0m", "\x1b[1;38;5;208mfancy\x1b[m", "\x1b[38;2;1;2;3mrgb", "\x1b[0;92mgreen\x1b[39;49m"]


def written_to_terminal(text: bytes, monkeypatch: pytest.MonkeyPatch) -> str:
    """What reaches a terminal when a job has written these bytes."""
    return shown_on_terminal(lambda: anyio.run(_print, text), monkeypatch)


def shown_on_terminal(act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """What reaches a terminal when a command does this."""
    reader, writer = pty.openpty()
    found = bytearray()

    def read() -> None:
        while data := _read(reader):
            found.extend(data)

    thread = threading.Thread(target=read)
    thread.start()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        act()
        monkeypatch.undo()
    thread.join()
    os.close(reader)
    return found.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other side is closed
        return b""


def lines_of(text: bytes) -> list[LogLine]:
    """The lines of a job's output, as its reader finds them."""
    log = _Log(0, 1, "n1", LogStream.STDOUT, 0)
    log.end()
    read = log.add(LogChunk(text, len(text), 1, ended=True, written=len(text)))
    return read + log.add(LogChunk(b"", len(text), 1, ended=True, written=len(text)))


async def _print(text: bytes) -> None:
    async def lines() -> AsyncIterator[LogLine]:
        for line in lines_of(text):
            yield line

    await print_output(Screen(), lines(), several=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_of_a_job_reaches_the_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = written_to_terminal(f"before {command} after\n\tnext\n".encode(), monkeypatch)

    assert shown.startswith("before ")
    assert shown.endswith(" after\r\n\tnext\r\n")
    body = shown.removesuffix("\r\n").replace("\r\n\t", "")
    assert all(letter.isprintable() for letter in body), repr(shown)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_in_the_file_of_an_operation_reaches_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = msgspec.structs.replace(a_view(), spec=OperationSpec(PoolName("p"), ["echo", command], title=command))

    shown = shown_on_terminal(lambda: print_file(Screen(), view), monkeypatch)

    assert shown.startswith("command: ")
    assert all(line.isprintable() for line in shown.split("\r\n")), repr(shown)


@pytest.mark.parametrize("colours", COLOURS)
def test_colours_of_a_job_reach_the_terminal_and_end_with_their_line(
    colours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert written_to_terminal(f"{colours}\r\nnext\n".encode(), monkeypatch) == f"{colours}\x1b[0m\r\nnext\r\n"

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in written_to_terminal(colours.encode(), monkeypatch)


@pytest.mark.parametrize(
    "text",
    [
        b"".join(command.encode() for command in COMMANDS),
        bytes(range(256)) * 12,
        b"no end",
        b"a\nb\n",
        b"",
        b"\r\n\r\n\n",
    ],
)
def test_a_file_gets_every_byte_as_the_job_wrote_it(text: bytes, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    anyio.run(_print, text)

    assert capsysbinary.readouterr().out == text


@pytest.mark.parametrize("text", [b"little\n", b"much\n" * 100_000])
def test_a_file_that_cannot_be_written_is_named(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "0.out").symlink_to("/dev/full")

    async def lines() -> AsyncIterator[LogLine]:
        for line in lines_of(text):
            yield line

    async def save() -> None:
        await save_output(lines(), tmp_path)

    with pytest.raises(OSError, match=r"No space left on device: '.*/0\.out'"):
        anyio.run(save)


def test_json_means_the_same_and_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = "".join(COMMANDS) + "é–"
    Screen(json=True).print_line({"text": text})
    Screen(json=True).show({"text": text}, Text())
    told = capsys.readouterr().out

    line, _, document = told.partition("\n")
    assert json.loads(line) == json.loads(document) == {"text": text}
    assert all(letter.isprintable() or letter == "\n" for letter in told)


def test_what_is_harmless_stays_as_it_is() -> None:
    assert harmless("plain – é 漢字\n\tindented") == "plain – é 漢字\n\tindented"
    assert harmless_json(b'{"a":"\\u001b"}') == '{"a":"\\u001b"}'
    encoded = base64.b64encode(bytes(range(256))).decode()
    assert harmless(encoded, with_colours=True) == encoded


@pytest.mark.parametrize("end", ["\n", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028"])
def test_a_reason_adds_no_line_to_a_list_of_events(end: str) -> None:
    """In `headrace events`, a second line of a reason looked like an event of another operation."""
    forged = f"wrong input{end}2026-11-29 21:50:29  operation-2  completed"
    step = OperationStep(1, OperationId("operation-1"), OperationState.ABORTED, "aborted_by_user", reason=forged)
    failed = JobEnd(OperationId("o"), 0, 1, AllocationId("a"), JobResult.FAILED, reason=forged)
    explained = OperationExplanation(msgspec.structs.replace(a_view(), state=OperationState.ABORTED, reason=forged), [])

    for line in (happening_words(step), *failure_lines(failed), sentence(explained)):
        assert len(line.splitlines()) == 1
        assert "operation-2  completed" in line


@pytest.mark.parametrize(
    "words", [["\x1b]0;mine\x07"], ["op", "\x9b2J"], ["run", "--\x1b]0;mine\x07"], ["whoami", "a\x1b[2J"]]
)
def test_words_that_no_command_accepts_send_no_commands_to_the_terminal(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(words) == Exit.USAGE
    told = "".join(capsys.readouterr())

    assert told
    assert not {"\x1b", "\x9b", "\x07"}.intersection(told)


@pytest.mark.parametrize("ended_at_ms", [253_402_300_799_000, 253_402_300_800_000, 2**53])
def test_events_are_shown_whatever_time_a_node_reports(ended_at_ms: int) -> None:
    """One such end of a job once ended `headrace events` and `op history` with an error for everybody."""
    end = JobEnd(
        OperationId("operation-1"), 0, 1, AllocationId("a"), JobResult.FAILED, started_at_ms=1, ended_at_ms=ended_at_ms
    )
    logged = JobsEnded(operation=end.operation, ends=[LoggedEnd(end, NodeName("n1"))], at_ms=1)
    (happening,) = recorded(Published(TreeName("default"), 1, 1, 1, [logged])).happenings

    for zone in (None, UTC, ZoneInfo("Pacific/Kiritimati")):
        assert "operation-1  job 0 on n1" in happening_words(happening, zone)
        assert any("9999-12-" in line for line in shown(history_table([happening], zone), 200))
