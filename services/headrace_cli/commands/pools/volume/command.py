"""The command `headrace pool volume`: show a pool over time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.text import Text

from headrace.client import Client, Refused, Unanswered
from headrace.errors import BadInput
from headrace.runtime.clock import SystemClock
from headrace.wire.history import MOST_POINTS, PoolHistory
from headrace.wire.lost_work import LostWorkTold
from headrace_cli.option_values import MaybeWhole
from headrace_cli.session import InTree, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.times import parse_timestamp_ms

#: Number of points of history for a picture in a file. More points would not be visible: the picture has fewer columns of pixels.
_FILE_POINTS = 1_500
#: Height of the lines in a panel of characters, in rows.
_ROWS = 12
_WIDTH_OF_A_PIPE = 100
_WIDEST = 200


def volume(
    name: str,
    /,
    *,
    since: Annotated[str, Parameter(allow_leading_hyphen=True)] = "1d",
    until: Annotated[str, Parameter(allow_leading_hyphen=True)] = "now",
    plot: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    resource: Literal["cpu", "memory", "gpu", "network", "user_slots"] = "cpu",
    points: MaybeWhole = None,
    common: InTree | None = None,
) -> int:
    """Draw a pool over time: usage, demand, guarantees, savings and fairness.

    Without `--plot` it prints figures and draws usage and savings in characters. `--plot` also draws how much of the fair share was
    delivered, the smallest job that waited, and what preemption cost. Records go back seven days; `headrace bus provision --history-age`
    changes that. A gap in a line means that nothing was recorded.

    Examples of use:

        headrace pool volume nightly

        headrace pool volume nightly --since 6h --plot nightly.png

        headrace pool volume nightly --since 2026-11-20T18:00 --until 2026-11-21T06:00 --plot -

        headrace pool volume research --resource memory --json | jq '.points[-1]'

    Parameters
    ----------
    name
        The pool, or its path; `/` or `<Root>` for the whole tree.
    since
        Begin of the period: how long ago (90s, 6h, 7d), or a time (2026-11-20T18:00, 18:00).
    until
        End of the period, written in the same way.
    plot
        A file that ends in .png or .svg, or - to draw in characters only.
    resource
        The resource to draw.
    points
        Number of points in the period, 1 to 4000; as many as the picture can show unless given.
    """
    since_ms, until_ms = stretch_ms(since, until)
    if points is not None and not 1 <= points <= MOST_POINTS:
        raise BadInput("--points", points, f"a number from 1 to {MOST_POINTS}")
    file = Path(plot) if plot not in (None, "-") else None
    if file is not None:
        from headrace_cli.commands.pools.volume.chart_file import check_file

        check_file(file, ", or - for characters")

    async def work(client: Client, screen: Screen) -> None:
        width = min(screen.width, _WIDEST) if screen.out.is_terminal else _WIDTH_OF_A_PIPE
        count = points or (_FILE_POINTS if file is not None else 2 * width)
        # Show the period from the oldest record on. Otherwise the history of a new pool would be a sliver at the end of a day.
        within = dict(since_ms=since_ms, until_ms=until_ms, points=count)
        history = await client.pools.history(await client.pools.at(name), **within, resource=resource, from_oldest=True)
        _tell(history, await _lost_work(client, history), screen, file, width, figures=plot is None)

    return talk(common, work)


async def _lost_work(client: Client, history: PoolHistory) -> LostWorkTold | None:
    """Return the work lost to preemption. None if admission does not answer, because the rest can be shown without it."""
    try:
        return await client.pools.lost_work(history.pool, since_ms=history.since_ms, until_ms=history.until_ms)
    except (Refused, Unanswered):
        return None


def stretch_ms(since: str, until: str) -> tuple[int, int]:
    """Parse a period and return its begin and end in milliseconds of Unix time. Raises `BadInput`."""
    now_ms = SystemClock().wall_ms()
    since_ms = parse_timestamp_ms(since, place="--since", now_ms=now_ms)
    until_ms = min(parse_timestamp_ms(until, place="--until", now_ms=now_ms), now_ms) + 1
    if since_ms >= until_ms:
        raise BadInput("--since", since, f"a time before --until, which is {until}")
    return since_ms, until_ms


def _tell(
    history: PoolHistory, lost: LostWorkTold | None, screen: Screen, file: Path | None, width: int, *, figures: bool
) -> None:
    if file is not None:
        _write(history, lost, file, screen)
    if screen.json:
        from headrace_cli.commands.pools.volume.fairness import lost_work_json
        from headrace_cli.commands.pools.volume.summary import history_json

        shown = history_json(history)
        shown["lost_work"] = None if lost is None else lost_work_json(lost, history.resource)
        screen.show(shown, Text())
    elif file is None:
        _show(history, lost, screen, width, figures=figures)


def _write(history: PoolHistory, lost: LostWorkTold | None, file: Path, screen: Screen) -> None:
    from headrace_cli.commands.pools.volume.chart import pool_chart
    from headrace_cli.commands.pools.volume.chart_file import draw

    draw(pool_chart(history, [] if lost is None else lost.lost), file)
    screen.say(f"wrote {file}", whole=True)


def _show(history: PoolHistory, lost: LostWorkTold | None, screen: Screen, width: int, *, figures: bool) -> None:
    from headrace_cli.commands.pools.volume.chart import pool_chart
    from headrace_cli.commands.pools.volume.chart_text import NARROWEST, chart_texts
    from headrace_cli.commands.pools.volume.fairness import fairness_facts
    from headrace_cli.commands.pools.volume.summary import summary, summary_title

    screen.print(summary_title(history))
    if figures:
        screen.print(Text(), summary(history), Text(), fairness_facts(history, lost))
    if not history.points:
        screen.say("nothing was recorded in this period")
        return
    if width < NARROWEST:
        screen.say(f"a picture needs {NARROWEST} columns, and the terminal has {width}")
        return
    ascii_only = not screen.out.encoding.lower().startswith("utf")
    colours = screen.out.color_system is not None and not ascii_only
    drawn = pool_chart(history, None if figures else [] if lost is None else lost.lost)
    for text in chart_texts(drawn, width, _ROWS, colours=colours, ascii_only=ascii_only):
        screen.print(Text(), text)
