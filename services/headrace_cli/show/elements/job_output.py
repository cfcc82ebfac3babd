"""Output of jobs as a person reads it, with a line in brackets where something is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator

from headrace.client import LogLine
from headrace.resources import format_amount
from headrace.wire.logs import LogStream
from headrace_cli.show.plain_values import plain
from headrace_cli.show.screen import Screen


async def print_output(screen: Screen, lines: AsyncIterator[LogLine], *, several: bool, both: bool = False) -> None:
    """Prints lines as they come. Of `both` streams each goes to our own of that name, unless JSON is asked for.

    What goes to a file or a pipe is what the job wrote, byte by byte; with `several` jobs the index of each stands before its lines.
    """
    async for line in lines:
        if screen.json:
            fields = plain(line)
            assert isinstance(fields, dict)
            del fields["raw"]
            screen.print_line(fields)
            continue
        is_error = both and line.stream is LogStream.STDERR
        is_shown = (screen.err if is_error else screen.out).is_terminal
        before = f"{line.index}: ".encode() if several else b""
        for note in output_notes(line):
            screen.print_raw(before + note.encode(), error=is_error)
        if not line.trouble:
            screen.print_raw(before + line.raw, error=is_error, end="\n" if line.has_end or several or is_shown else "")


def output_notes(line: LogLine) -> list[str]:
    """The words in brackets that stand before a line: how much is missing there, and why no more can be read. Pure."""
    notes = []
    if line.missing_bytes:
        size = format_amount("memory", line.missing_bytes)
        notes.append(f"[{size} are gone here: above the log cap a job's oldest output goes]")
    if line.skipped_bytes:
        size = format_amount("memory", line.skipped_bytes)
        notes.append(f"[{size} are left out here: the job writes faster than this follows]")
    if line.trouble:
        notes.append(f"[the rest of the output of job {line.index} cannot be read: {line.trouble}]")
    return notes
