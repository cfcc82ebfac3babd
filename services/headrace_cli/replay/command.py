"""The command `headrace replay`: run a period of the log again under another configuration of pools.

The engines belong to the services, and services never import each other. So this command only gathers the data and shows
the result; the replay runs in a separate process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from headrace.client import Client
from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.wire.replay import Replay, ReplayRefused, ReplayTask
from headrace_cli.commands.pools.volume.command import stretch_ms
from headrace_cli.exit_statuses import Exit
from headrace_cli.replay.gathering import Wished, gathered
from headrace_cli.session import Common, talk
from headrace_cli.show.configuration_changes import say_plan
from headrace_cli.show.screen import Screen
from headrace_cli.simulator_process import answer_of


def replay(
    *,
    with_: Annotated[str, Parameter(name="--with", allow_leading_hyphen=True)],
    since: Annotated[str, Parameter(allow_leading_hyphen=True)] = "24h",
    until: Annotated[str, Parameter(allow_leading_hyphen=True)] = "now",
    step: str | None = None,
    resource: Literal["cpu", "memory", "gpu", "network", "user_slots"] = "cpu",
    plot: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    common: Common | None = None,
) -> int:
    """Replay a period of the log under another configuration of pools, and compare it with what happened.

    In simulated time, the services' own engines decide again when jobs start and which jobs are preempted. No job runs, and nothing is
    changed.
    For each pool it shows usage, fair share and waiting times, under the recorded configuration (before) and under the other configuration
    (after). The first lines say how well the replay under the recorded configuration agrees with what happened. The log does not contain
    how pools were changed, or when nodes came and went: the recorded configuration is the present configuration, and the nodes are the
    present nodes.

    Examples of use:

        headrace pool export --options > pools.yaml

        headrace replay --with pools.yaml

        headrace replay --with pools.yaml --since 6h --plot replay.png

        headrace replay --with pools.yaml --since 18:00 --until 20:00 --json | jq '.pools[].after.median_wait_ms'

    Parameters
    ----------
    with_
        The other configuration: a file of `headrace pool export`, or YARN's fair-scheduler.xml; - for standard input.
    since
        Begin of the period: how long ago (90s, 6h, 1d), or a time (2026-11-20T18:00, 18:00).
    until
        End of the period, written in the same way.
    step
        Simulated time between two updates of shares, such as 200ms. Unless given, it depends on the length of the period.
    resource
        The resource to count.
    plot
        File for a picture; its name ends in .png or .svg.
    """
    require("analysis", "`headrace replay`")
    since_ms, until_ms = stretch_ms(since, until)
    step_ms = parse_duration_ms(step, place="--step") if step is not None else None
    if step_ms == 0:
        raise BadInput("--step", step, "a length of time such as 200ms or 5s")
    chart_path = _chart_path(plot)
    task = _asked(with_, Wished(since_ms, until_ms, resource, step_ms), common)
    screen = Screen(json=(common or Common()).json)
    return _show(screen, _replayed(task, screen), chart_path) if task is not None else Exit.REFUSED


def _asked(file: str, wished: Wished, common: Common | None) -> ReplayTask | None:
    """Return what to replay. None if the file breaks rules; the broken rules have been printed."""
    from headrace_cli.commands.pools.files import configured

    # Imported only for this command, because the parsers of YAML and XML take longer to import than most commands take to run.
    from headrace_cli.commands.pools.importing import read_import

    importing = read_import(file, None)
    tasks: list[ReplayTask] = []

    async def work(client: Client, screen: Screen) -> None:
        if importing.tree and importing.tree != client.trees.own:
            raise BadInput(f"{file}: tree", importing.tree, f"{client.trees.own}, the tree of this command")
        listed = await client.pools.list()
        changes, warnings = importing.changes(configured(listed), listed.frame.total, keep=False)
        plan = await client.pools.change(changes, dry_run=True)
        plan = msgspec.structs.replace(plan, warnings=[*warnings, *plan.warnings], dry_run=False)
        if say_plan(screen, plan):
            tasks.append(await gathered(client, wished, listed, changes, screen.say))

    talk(common, work)
    return tasks[0] if tasks else None


def _chart_path(plot: str | None) -> Path | None:
    if plot is None:
        return None
    from headrace_cli.commands.pools.volume.chart_file import check_file

    check_file(Path(plot))
    return Path(plot)


def _replayed(task: ReplayTask, screen: Screen) -> Replay | ReplayRefused | None:
    """Replay in another process. Return None if the process failed; the end of its stderr has been printed."""
    answer: Replay | ReplayRefused | None = answer_of([], task, Replay | ReplayRefused, screen, "replayed")
    return answer


def _show(screen: Screen, answer: Replay | ReplayRefused | None, chart_path: Path | None) -> int:
    from headrace_cli.replay.tables import replay_notes, replay_table, replay_title

    match answer:
        case None:
            return Exit.FAILED
        case ReplayRefused(why):
            screen.say(f"nothing was replayed: {why}", style="red")
            return Exit.REFUSED
        case Replay():
            if chart_path is not None:
                from headrace_cli.replay.chart_file import draw_replay

                draw_replay(answer, chart_path)
                screen.say(f"wrote {chart_path}", whole=True)
            table = replay_table(answer)
            if screen.json:
                screen.show(answer, table)
            else:
                screen.print(*replay_title(answer), "", table, "", *replay_notes(answer))
            return Exit.DONE
