"""Makes the pictures and the figures of docs/how-to/integral-guarantees.md.

    python docs/pictures/integral_guarantees.py [--page]

The two days are simulated with the services' own engines, recorded and drawn as `headrace pool volume` records and draws. The
picture of one machine is drawn from a record of a real run, which `docs/pictures/one_machine.py` makes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Final

ROOT_FOLDER: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT_FOLDER), str(ROOT_FOLDER / "shared"), str(ROOT_FOLDER / "services")]

import msgspec  # noqa: E402

from headrace.ids import PoolName  # noqa: E402
from headrace.wire.codec import decode  # noqa: E402
from headrace.wire.history import GetHistory, HistorySample, PoolHistory  # noqa: E402
from headrace_cli.commands.pools.volume import chart_file  # noqa: E402
from headrace_cli.commands.pools.volume.chart import pool_chart  # noqa: E402
from headrace_cli.commands.pools.volume.chart_text import chart_texts  # noqa: E402
from headrace_fair_share.history.downsampling import Downsampler  # noqa: E402
from headrace_fair_share.history.sampling import HistoryOptions, SampleInput, Sampler  # noqa: E402
from tests.support.integral_day import (  # noqa: E402
    BUSY_FROM_S,
    BUSY_UNTIL_S,
    END_S,
    HOUR_S,
    PRODUCTION,
    RESEARCH,
    Sample,
    two_days,
)
from tests.support.simulated_tree import TREE, PoolPoint, SimulatedTree  # noqa: E402

__all__ = ["FOLDER", "ONE_MACHINE", "PAGE", "PICTURES", "draw", "figures", "history"]

PAGE: Final = ROOT_FOLDER / "docs" / "how-to" / "integral-guarantees.md"
FOLDER: Final = PAGE.parent / "integral-guarantees"
#: History of the burst pool in a real run.
ONE_MACHINE: Final = Path(__file__).parent / "one-machine.json"
#: An update and a sample a minute: coarser than a service, fine enough for two days.
PERIOD_S: Final = 60
_POINTS: Final = 192


class Days(msgspec.Struct, frozen=True):
    """Results of the two days: figures of each update, and the history as it was recorded."""

    samples: list[Sample]
    record: list[HistorySample]


@cache
def days() -> Days:
    """Simulated once."""
    record: list[HistorySample] = []
    sampler = Sampler(TREE, HistoryOptions(period_ms=PERIOD_S * 1_000))

    def keep(tree: SimulatedTree) -> None:
        view = SampleInput.of(tree.fair_share)
        taken = sampler.sample(view)
        sampler.on_taken(view, taken)
        record.extend(decode(page, HistorySample) for page in taken.pages)

    return Days(two_days(PERIOD_S, keep), record)


def history(pool: PoolName) -> PoolHistory:
    """Both days of a pool, as `pool.history` answers."""
    record = days().record
    since_ms, until_ms = record[0].at_ms, record[-1].at_ms + 1
    gathered = Downsampler(GetHistory(pool, since_ms, until_ms, points=_POINTS))
    for sample in record:
        gathered.add(sample)
    return PoolHistory(pool, TREE, "cpu", since_ms, until_ms, gathered.points)


#: Hours of the table, and what happens then.
_HOURS: Final = {
    0: "the first midnight: nothing is saved",
    12: "production saves, research has everything",
    24: "production's savings are full",
    31: "an hour before work begins",
    32: "production asks for everything",
    38: "in the middle of its work",
    43: "an hour before its end",
    44: "production is done",
    48: "the second midnight",
}


def figures() -> str:
    """The tables of the page, in Markdown."""
    by_time = {sample.at_s: sample for sample in days().samples}
    lines = [
        "| hour | | production: share, saved | research: share, saved |",
        "|---|---|---|---|",
    ]
    for hour, words in _HOURS.items():
        pools = by_time[hour * HOUR_S].pools
        lines.append(f"| {hour} | {words} | {_cell(pools[PRODUCTION])} | {_cell(pools[RESEARCH])} |")
    second = [sample for sample in days().samples if END_S // 2 <= sample.at_s < END_S]
    busy = [sample for sample in days().samples if BUSY_FROM_S <= sample.at_s < BUSY_UNTIL_S]
    lines += [
        "",
        "| over | production | research |",
        "|---|---|---|",
        f"| its twelve hours of work, on average | {_mean(busy, PRODUCTION)} | {_mean(busy, RESEARCH)} |",
        f"| the second day, on average | {_mean(second, PRODUCTION)} | {_mean(second, RESEARCH)} |",
    ]
    return "\n".join(lines) + "\n"


def _cell(point: PoolPoint) -> str:
    return f"{point.fair_share:,.0f} cores, {point.volume / HOUR_S:,.0f} core-hours"


def _mean(samples: list[Sample], pool: PoolName) -> str:
    return f"{sum(sample.pools[pool].fair_share for sample in samples) / len(samples):,.0f} cores"


def plot(name: str) -> str:
    """A picture in characters, as `headrace pool volume NAME --plot -` draws it."""
    panels = chart_texts(pool_chart(PICTURES[name]()), 100, 8, colours=False, ascii_only=True, zone=UTC)
    return "".join(f"{line.rstrip()}\n" for panel in panels for line in panel.plain.splitlines())


#: The text between these marks is generated: output of `headrace plan` for an example, pictures in characters, figures of the days.
_PLAN: Final = re.compile(r"(<!-- plan: (\S+) -->\n```\n).*?(```\n)", re.DOTALL)
_PLOT: Final = re.compile(r"(<!-- plot: (\S+) -->\n```\n).*?(```\n)", re.DOTALL)
_FIGURES: Final = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->\n)", re.DOTALL)


def filled(text: str) -> str:
    """The page with all that is made in it as it is now."""
    text = _FIGURES.sub(lambda found: found[1] + figures() + found[2], text)
    text = _PLOT.sub(lambda found: found[1] + plot(found[2]) + found[3], text)
    return _PLAN.sub(lambda found: found[1] + plan(found[2]) + found[3], text)


def plan(example: str) -> str:
    """Return the output of `headrace plan` for an example."""
    words = [sys.executable, "-m", "headrace_cli", "plan", f"docs/examples/{example}"]
    done = subprocess.run(words, cwd=ROOT_FOLDER, capture_output=True, text=True, check=True)
    return done.stdout


def one_machine() -> PoolHistory:
    """The burst pool of a real run on one machine."""
    return msgspec.json.decode(ONE_MACHINE.read_bytes(), type=PoolHistory)


PICTURES: Final[dict[str, Callable[[], PoolHistory]]] = {
    "production": lambda: history(PRODUCTION),
    "research": lambda: history(RESEARCH),
    "one-machine": one_machine,
}


def draw(name: str, path: Path) -> None:
    """Draws a picture into an SVG file."""
    chart_file.draw(pool_chart(PICTURES[name]()), path, UTC)


def main() -> None:
    """Prints the figures, or writes them into the page."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--page", action="store_true", help="write the page's figures anew")
    if parser.parse_args().page:
        PAGE.write_text(filled(PAGE.read_text()))
    else:
        print(figures(), end="")


if __name__ == "__main__":
    main()
