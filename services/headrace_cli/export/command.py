"""The command `headrace export operations`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from headrace.client import Client
from headrace.client.finished import FinishedPage, LogPosition
from headrace.counted import counted
from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.runtime.clock import SystemClock
from headrace.runtime.readiness import Readiness
from headrace_cli.export.line_file import Kept, open_lines
from headrace_cli.outgoing.delivery import is_url, with_variables
from headrace_cli.outgoing.position_file import PositionFile, locked
from headrace_cli.session import Common, Switch, own_readiness, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.times import parse_timestamp_ms

app = App(name="export", help="Export finished operations to a file or an HTTP endpoint.")

_STDOUT: Final = "-"
_HEADER: Final = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):\s*(\S.*)\Z")


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Options that choose the operations to export, and options for the requests to an endpoint."""

    since: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Only operations that ended since then: a duration such as 8h, or a time such as 2026-11-20T18:00. Default: all that the log has."""
    until: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Only operations that ended before then, written in the same way."""
    position: Path | None = None
    """For an endpoint: the file that keeps the position in the log after the operations that were sent."""
    header: Annotated[tuple[str, ...], Parameter(name="--header", show_default=False)] = ()
    """For an endpoint: a header such as 'Authorization: Bearer ${TOKEN}', with ${NAME} for the environment variable NAME."""


class _Exporting:
    """One export: its options, and the number of operations that were exported so far."""

    def __init__(self, target: str, where: Where, *, follow: bool) -> None:
        now_ms = SystemClock().wall_ms()
        self.target = target
        self.follow = follow
        #: Reports to systemd if `--follow` is given. An export that ends by itself reports nothing.
        self.readiness = own_readiness() if follow else Readiness()
        self.since_ms = parse_timestamp_ms(where.since, place="--since", now_ms=now_ms) if where.since else 0
        self.until_ms = parse_timestamp_ms(where.until, place="--until", now_ms=now_ms) if where.until else None
        self.position_file = where.position
        self.headers = dict(map(_read_header, where.header))
        self.count = 0
        self.incomplete = 0

    async def pages(
        self, client: Client, screen: Screen, position: LogPosition | None = None
    ) -> AsyncIterator[FinishedPage]:
        """Yield the pages of the chosen operations. Count them, and say what is missing."""
        self.readiness.ready(f"exports operations to {self.target}")
        async with aclosing(client.finished.pages(position, since_ms=self.since_ms, follow=self.follow)) as pages:
            async for page in pages:
                if page.lost is not None:
                    words = (
                        f"entries {page.lost.first} to {page.lost.last} of the log were removed before they were read"
                    )
                    screen.say(f"{words}: operations that ended there are missing", style="yellow")
                until_ms = self.until_ms
                chosen = [each for each in page.operations if until_ms is None or each.ended_at_ms < until_ms]
                self.count += len(chosen)
                self.incomplete += sum(not each.is_complete for each in chosen)
                yield page._replace(operations=chosen)

    def tell(self, screen: Screen) -> None:
        """Say what was exported."""
        if screen.json and self.target != _STDOUT:
            screen.show_json({"target": self.target, "operations": self.count, "incomplete": self.incomplete})
            return
        place = "standard output" if self.target == _STDOUT else self.target
        screen.say(f"{counted(self.count, 'operation')} exported to {place}", whole=True)
        if self.incomplete:
            screen.say(
                f"{self.incomplete} of these operations began before the first entry of the log: only their ends are known"
            )


@app.command
def operations(
    target: Annotated[str, Parameter(allow_leading_hyphen=True)] = _STDOUT,
    /,
    *,
    follow: Annotated[Switch, Parameter(name=["--follow", "-f"])] = False,
    format: Literal["jsonl", "csv", "parquet"] = "jsonl",
    where: Where | None = None,
    common: Common | None = None,
) -> int:
    """Export finished operations, each once: as JSON lines, CSV or Parquet.

    JSON lines are appended to a file, or sent to an HTTP endpoint. The next export to the same file, or with the same `--position`,
    goes on after the last operation that was exported, even if the command was killed. A file has each operation exactly once. An endpoint
    gets each operation at least once: a request that may have been received is repeated with the same `Idempotency-Key`. If an endpoint
    does not answer, the request is sent again, with pauses of up to five minutes.

    CSV and Parquet files are written as a whole, and replace the file. Each person may export what `op list` shows.
    Operations are read from the log; if entries were removed before they were read, a line says which.
    Ctrl-C ends the export. After a minute without the bus it ends with exit status 3.

    Examples of use:

        headrace export operations

        headrace export operations ended.jsonl --follow

        headrace export operations https://example.com/ended --position ended.position --header 'Authorization: Bearer ${TOKEN}' --follow

        headrace export operations ended.csv --format csv --since 7d

        headrace export operations ended.parquet --format parquet --since 2026-10-01 --until 2026-11-01

    Parameters
    ----------
    target
        A file, the address of an HTTP endpoint, or `-` for stdout.
    follow
        Go on until Ctrl-C, and export operations as they end.
    format
        Format of the export. Parquet needs `pip install 'headrace[parquet]'`.
    """
    where = where or Where()
    _check(target, where, format, follow=follow)
    exporting = _Exporting(target, where, follow=follow)

    async def work(client: Client, screen: Screen) -> None:
        if format != "jsonl":
            await _write_table(exporting, client, screen, format)
        elif target == _STDOUT:
            async for page in exporting.pages(client, screen):
                for each in page.operations:
                    screen.print_line(each)
            return
        elif is_url(target):
            await _send(exporting, client, screen)
        else:
            await _append(exporting, client, screen)
        exporting.tell(screen)

    return talk(common, work, bears_restarts=True, readiness=exporting.readiness)


def _check(target: str, where: Where, format_: str, *, follow: bool) -> None:
    """Check that the options fit together. Raises `BadInput`."""
    is_stored = format_ == "jsonl" and target != _STDOUT
    if follow and format_ != "jsonl":
        raise BadInput("--format", format_, "jsonl, because with --follow lines are appended")
    if is_url(target):
        require("export", "an export to an HTTP endpoint")
    if is_url(target) and format_ != "jsonl":
        raise BadInput("--format", format_, "jsonl, because the target is an HTTP endpoint")
    if format_ == "parquet" and target == _STDOUT:
        raise BadInput("TARGET", target, "a file, because --format parquet cannot be written to standard output")
    if is_url(target) and where.position is None:
        raise BadInput.because(
            "--position",
            "an export to an endpoint needs a file that keeps the position in the log. Name one, such as --position ended.position",
        )
    if not is_url(target) and (where.position is not None or where.header):
        option = "--position" if where.position is not None else "--header"
        raise BadInput.because(option, f"{option} needs an HTTP endpoint as the target")
    if where.until and (is_stored or follow):
        fault = "an export that a later export continues has no end. Use --format csv or parquet, or write to standard output"
        raise BadInput.because("--until", fault)


def _read_header(text: str) -> tuple[str, str]:
    found = _HEADER.match(text)
    if found is None or not text.isprintable():
        raise BadInput("--header", text, "a name, a colon and a value, such as 'Authorization: Bearer ${TOKEN}'")
    return found[1], with_variables(found[2], "--header")


async def _append(exporting: _Exporting, client: Client, screen: Screen) -> None:
    with open_lines(Path(exporting.target)) as file:
        async for page in exporting.pages(client, screen, file.position):
            if page.operations:
                file.append(page.operations, page.position)
            else:
                file.keep(page.position)


async def _send(exporting: _Exporting, client: Client, screen: Screen) -> None:
    from headrace_cli.export.endpoint import Endpoint

    assert exporting.position_file is not None
    path = exporting.position_file
    with locked(path.with_name(f"{path.name}.lock")):
        file = PositionFile(path, Kept, Kept(str(LogPosition())))
        endpoint = Endpoint(exporting.target, exporting.headers, file, screen)
        async for page in exporting.pages(client, screen, endpoint.position):
            if page.operations:
                await endpoint.append(page.operations, page.position)
            else:
                await endpoint.keep(page.position)


async def _write_table(exporting: _Exporting, client: Client, screen: Screen, format_: str) -> None:
    from headrace_cli.export.tables import csv_table, parquet_table

    path = None if exporting.target == _STDOUT else Path(exporting.target)
    with csv_table(path) if path is None or format_ == "csv" else parquet_table(path) as add:
        async for page in exporting.pages(client, screen):
            add(page.operations)
