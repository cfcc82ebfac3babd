"""The display of the demo: a bar for each pool on a terminal, lines elsewhere, and tables at the end."""

from __future__ import annotations

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace.resources import RESOURCE_NAMES, Resources, Share, parse_resources
from headrace_cli.commands.pools.key_values import parse_figures
from headrace_cli.demo.averages import Averages
from headrace_cli.demo.comeback import GivenUp
from headrace_cli.demo.plan import LENDER, NODES, POOLS, DemoPool
from headrace_cli.show.amounts import amounts
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import table


class DemoBars:
    """Shows the progress of the pools: one bar for each pool on a terminal, else a line from time to time."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._live = screen.err.is_terminal
        self.bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            console=screen.err,
            transient=True,
            disable=not self._live,
        )
        self._tasks = {pool.name: self.bars.add_task(pool.name, total=pool.jobs, words="") for pool in POOLS}
        self._tenths = 0

    def update(self, done: dict[str, int], cores: dict[str, float]) -> None:
        """Show how many jobs of each pool are done and how many cores the pool uses."""
        for name, task in self._tasks.items():
            self.bars.update(task, completed=done[name], words=f"{cores.get(name, 0.0):g} cores in use")
        total = sum(pool.jobs for pool in POOLS)
        tenths = 10 * sum(done.values()) // total
        if not self._live and tenths > self._tenths:
            self._screen.say(f"{sum(done.values())} of {total} jobs done")
        self._tenths = tenths


def result_table(averages: Averages, done: dict[str, int]) -> Table:
    """Return a table of each pool's guarantee, fair share, usage and completed jobs."""
    made = table(
        "pool",
        "weight",
        "guarantee",
        "fair share",
        "average usage",
        "jobs done",
        right=("weight", "jobs done"),
    )
    for pool in POOLS:
        made.add_row(
            pool.name,
            f"{pool.options.weight:g}",
            amounts(_guarantee(pool)),
            f"cpu {averages.fair_share(pool.name):.2f}",
            f"cpu {averages.usage(pool.name):.2f}",
            f"{done[pool.name]}/{pool.jobs}",
        )
    return made


def given_up_table(given_up: list[GivenUp]) -> Table:
    """Return a table of the preempted jobs. For each: its operation's fair share, and the operation's usage before and after."""
    made = table("job", "on", "ran", "owed", "had", "kept", right=("ran",))
    for each in given_up:
        record = each.record
        shares = (record.fair_share, record.share_before, record.share_after)
        made.add_row(
            f"{LENDER.pool}/{each.job}",
            each.node,
            f"{each.ran_s:.1f} s",
            *(f"cpu {cores(share):.2f}" for share in shares),
        )
    return made


def cores(share: Share) -> float:
    """Return the cpu component of a share as a number of cores. A share of 1 is all cores of the demo's nodes."""
    return share[RESOURCE_NAMES.index("cpu")] * sum(float(node.amounts["cpu"]) for node in NODES)


def _guarantee(pool: DemoPool) -> Resources:
    return parse_resources(parse_figures("guarantee", pool.options.guarantee or ""), place="guarantee")
