"""Print or save the output of jobs, with a line in brackets wherever output is missing."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from headrace.client import LogLine
from headrace.counted import counted
from headrace.resources import format_amount
from headrace.wire.logs import LogStream
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.plain_values import plain
from headrace_cli.show.screen import Screen

#: Errors of writing to an open file. The exception of such an error does not name the file.
_OF_WRITING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


async def print_output(
    screen: Screen, lines: AsyncIterator[LogLine], *, several: bool, both: bool = False, files: str = ""
) -> None:
    """Print lines as they arrive. With `both`, a job's stderr is printed to the stderr of this command, unless JSON is asked for.

    A file or a pipe gets exactly the bytes that the job wrote. With `several` jobs, the job's index precedes each line. `files` is a text
    that is printed at the end: it names the files on the nodes to which the jobs wrote their output instead.
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
    if files:
        screen.say(files, style="yellow")


def file_words(spec: OperationSpec) -> str:
    """Return which files on the nodes have the output of the jobs instead of the jobs' logs; empty if no file has."""
    named = {"stdout": spec.output, "stderr": spec.error}
    files = [f"{stream} in {name}" for stream, name in named.items() if name]
    return f"the jobs wrote {' and '.join(files)}, in their folder on their nodes" if files else ""


async def save_output(lines: AsyncIterator[LogLine], folder: Path) -> str:
    """Write the output of each job to a file of its own in a folder that exists. Return the number of files, in words.

    Where output is missing or cannot be read, a note is written instead. Raises OSError with the name of a file that cannot be written.
    """
    seen: set[Path] = set()
    opened: IO[bytes] | None = None
    try:
        async for line in lines:
            path = folder / f"{line.index}.{'err' if line.stream is LogStream.STDERR else 'out'}"
            if opened is None or opened.name != str(path):
                if opened is not None:
                    opened.close()
                opened = path.open("ab" if path in seen else "wb")
                seen.add(path)
            opened.write("".join(f"{note}\n" for note in output_notes(line)).encode())
            if not line.trouble:
                opened.write(line.raw + (b"\n" if line.has_end else b""))
        if opened is not None:
            opened.close()
    except OSError as error:
        if opened is not None and error.errno in _OF_WRITING:
            error.filename = opened.name
        raise
    finally:
        if opened is not None:
            # If a write failed, closing the file fails with the same error.
            with suppress(OSError):
                opened.close()
    return f"{counted(len(seen), 'file')} in {folder}"


def output_notes(line: LogLine) -> list[str]:
    """Return the notes in brackets before a line: how much output is missing, and why the rest cannot be read. Pure."""
    notes = []
    if line.missing_bytes:
        size = format_amount("memory", line.missing_bytes)
        notes.append(f"[{size} are missing here: above the log cap, the oldest output of a job is dropped]")
    if line.skipped_bytes:
        size = format_amount("memory", line.skipped_bytes)
        notes.append(f"[{size} are left out here: the job writes faster than this command reads]")
    if line.trouble:
        notes.append(f"[the rest of the output of job {line.index} cannot be read: {line.trouble}]")
    return notes
