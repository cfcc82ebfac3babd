"""Output of jobs as a person reads it, with a line in brackets where something is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator

from headrace.client import LogLine
from headrace.resources import format_amount
from headrace.wire.logs import LogStream
from headrace_cli.show.plain_values import plain
from headrace_cli.show.screen import Screen


async def print_output(screen: Screen, lines: AsyncIterator[LogLine], *, several: bool, both: bool = False) -> None:
    """Prints lines as they come. Of `both` streams each goes to our own of that name, unless JSON is asked for."""
    async for line in lines:
        if screen.json:
            screen.print_line(plain(line))
            continue
        is_error = both and line.stream is LogStream.STDERR
        for words in output_lines(line):
            screen.print_raw(f"{line.index}: {words}" if several else words, error=is_error)


def output_lines(line: LogLine) -> list[str]:
    """The line, and before it in brackets how much is missing there. Pure."""
    notes = []
    if line.missing_bytes:
        size = format_amount("memory", line.missing_bytes)
        notes.append(f"[{size} are gone here: above the log cap a job's oldest output goes]")
    if line.skipped_bytes:
        size = format_amount("memory", line.skipped_bytes)
        notes.append(f"[{size} are left out here: the job writes faster than this follows]")
    if line.trouble:
        return [*notes, f"[the rest of the output of job {line.index} cannot be read: {line.trouble}]"]
    return [*notes, line.text]
