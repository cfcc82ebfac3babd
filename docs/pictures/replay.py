"""Draws the picture of docs/how-to/replay-a-day.md: an hour of two pools, replayed and drawn as `headrace replay --plot` does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT_FOLDER: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT_FOLDER), str(ROOT_FOLDER / "shared"), str(ROOT_FOLDER / "services")]

from headrace.ids import PoolName  # noqa: E402
from headrace.wire.pool_changes import Set  # noqa: E402
from headrace.wire.replay import Replay  # noqa: E402
from headrace_cli.replay.chart_file import draw_replay  # noqa: E402
from headrace_simulator.comparison import replayed  # noqa: E402
from tests.support.recorded_day import Day, a_tree  # noqa: E402

__all__ = ["FOLDER", "PICTURES", "an_hour", "draw"]

FOLDER: Final = ROOT_FOLDER / "docs" / "how-to" / "replay"
PICTURES: Final = ("day",)
_MINUTE_S: Final = 60
_NIGHTLY: Final = "operation-nightly"
_STUDY: Final = "operation-study"


def an_hour() -> Replay:
    """Adhoc has all sixteen cores until research comes after ten minutes, and half of them while that has work."""
    day = Day()
    day.start(_NIGHTLY, "adhoc", 64, 0)
    day.start(_STUDY, "research", 32, 10 * _MINUTE_S)
    runs: list[tuple[int, str, int, int]] = []
    done = 0
    for began, jobs in ((0, 16), (10, 8), (20, 8), (30, 16), (40, 16)):
        runs += [(began + 10, _NIGHTLY, done + each, began) for each in range(jobs)]
        done += jobs
    runs += [(15 + 5 * (each // 8), _STUDY, each, 10 + 5 * (each // 8)) for each in range(32)]
    for ended, name, index, began in sorted(runs):
        day.end(name, index, began * _MINUTE_S, ended * _MINUTE_S)
    heavier = Set(PoolName("research"), b'{"weight": 3}')
    task = day.task(a_tree(adhoc=1, research=1), 0, 60 * _MINUTE_S, cores=16, changes=[heavier], step_ms=5_000)
    answer = replayed(task, lambda _: None)
    assert isinstance(answer, Replay)
    return answer


def draw(name: str, path: Path) -> None:
    """Draws one of `PICTURES`."""
    assert name in PICTURES
    draw_replay(an_hour(), path)
