"""The command `headrace plan`: show the shares of a tree in a file, or of the running tree after some changes.

The algorithm belongs to the fair-share service, and services never import each other. For a file, a process of the
fair-share service computes, and this command shows the result.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, assert_never

import msgspec
from cyclopts import Parameter

from headrace.client import Client
from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.wire.plan import Plan, PlanRefused
from headrace_cli.commands.operations.dry_run import without_what_never_runs
from headrace_cli.commands.plans.plan_table import plan_notes, plan_table, plan_title
from headrace_cli.commands.plans.suppositions import nodes_in_words, supposed_changes, supposed_jobs, supposed_nodes
from headrace_cli.commands.plans.what_if import show_what_if
from headrace_cli.commands.pools.key_values import parse_figures
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, Switch, talk
from headrace_cli.show.screen import Screen

Several = Annotated[list[str] | None, Parameter(negative=())]

#: Exit statuses that mean that the computing process has written an answer.
_ANSWERED = (0, 2)


@Parameter(name="*")
@dataclass(frozen=True)
class Suppositions:
    """Options that suppose new or removed pools, more jobs, or other nodes. Each option may be repeated."""

    create: Several = None
    """With `--live`: suppose a new pool, such as research/vision."""
    remove: Several = None
    """With `--live`: suppose that a pool is removed, with all pools below it."""
    jobs: Several = None
    """With `--live`: suppose more jobs, such as research:200,cpu=1,memory=4G. Each needs one core unless `cpu` is given."""
    node_changes: Annotated[list[str] | None, Parameter(name="--nodes", negative=(), allow_leading_hyphen=True)] = None
    """With `--live`: suppose more or fewer nodes. +2 adds two nodes of the most frequent size, and -2 removes two. Resources choose
    another size: -2,cpu=16,memory=64G. -NODE removes the node of this name."""

    def given(self) -> str:
        """Return the name of the first option that was given, or an empty string."""
        values = {"--create": self.create, "--remove": self.remove, "--jobs": self.jobs, "--nodes": self.node_changes}
        return next((option for option, value in values.items() if value), "")


def plan(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    /,
    *changes: str,
    live: Switch = False,
    supposed: Suppositions | None = None,
    resource: Literal["cpu", "memory", "gpu", "network", "user_slots"] | None = None,
    total: str | None = None,
    common: Common | None = None,
) -> int:
    """Compute the shares of a tree in a file, or of the running tree after supposed changes.

    A file is a plan, or the output of `headrace pool export` together with `--total`. No server is needed.
    The figures of an element are for its dominant resource, unless `--resource` names one: demand, guarantee, fair share (as an amount
    and as a share of the cluster), and the parts of the fair share that come from its strong guarantee, from its integral guarantee and
    by weight.

    The last column says what bounds the fair share: `met` (its demand is met), `limit` (its own limit or that of a pool above), `fifo`
    (operations ahead of it), `gang` (all or nothing), the name of a used up resource, or `no` and a resource that the cluster lacks.

    With `--live` the running tree computes its shares before and after the changes, and what would starve when. Nothing is changed.
    Changes are `POOL.ATTRIBUTE=VALUE` with the attributes of `headrace pool set`.

    Examples of use:

        headrace plan tree.yaml

        headrace pool export --options | headrace plan - --total cpu=100,memory=400G

        headrace plan --live research.weight=3 adhoc.resource_limits.cpu=8

        headrace plan --live --create research/vision vision.strong_guarantee_resources.cpu=4 --jobs vision:200,cpu=1,memory=4G

        headrace plan --live --nodes -2

    Parameters
    ----------
    file
        A YAML or JSON file; `-` reads standard input. docs/examples/plan.yaml shows all that it may contain. With `--live`: a change.
    changes
        With `--live`: supposed changes of pools, such as research.weight=3.
    live
        Compute the shares of the running tree. Nothing is changed.
    resource
        Show figures of this resource. Not with `--live`.
    total
        Resources to share, such as `cpu=100,memory=400G`, in place of the `total` of the file.
    """
    words = [file, *changes] if file else []
    if live:
        _refuse_of_a_file(resource, total)
        return _ask_live(common, words, supposed or Suppositions())
    stray = (supposed or Suppositions()).given()
    if stray or len(words) != 1 or _is_change(words[0]):
        raise BadInput(
            "plan", stray or " ".join(words), "one FILE, or --live with supposed changes of the running tree"
        )
    figures = parse_figures("--total", total) if total is not None else None
    return _show(Screen(json=(common or Common()).json), _ask(file, figures), resource)


def _refuse_of_a_file(resource: str | None, total: str | None) -> None:
    if resource or total:
        given = "--resource" if resource else "--total"
        raise BadInput.because(
            "plan --live", f"{given} cannot be combined with --live, which shows all resources of the running tree"
        )


def _is_change(word: str) -> bool:
    return "=" in word and not Path(word).exists()


def _ask_live(common: Common | None, words: list[str], supposed: Suppositions) -> int:
    changes = supposed_changes(words, supposed.create or [], supposed.remove or [])
    operations, node_changes = supposed_jobs(supposed.jobs or []), supposed.node_changes or []
    if not (changes or operations or node_changes):
        raise BadInput.because(
            "plan --live",
            "no supposed change is given. Name at least one, such as research.weight=3, --jobs research:200 or --nodes -2",
        )

    async def work(client: Client, screen: Screen) -> int:
        listed = (await client.nodes()).nodes if node_changes else []
        nodes = supposed_nodes(node_changes, listed)
        # `without_what_never_runs` compares jobs with the present nodes only. If nodes are supposed, a job may fit on one of them.
        those = operations if nodes else await without_what_never_runs(screen, client, operations)
        answer = await client.pools.what_if(changes, operations=those, nodes=nodes)
        for each in nodes:
            screen.say(f"supposed: {nodes_in_words(each)}")
        return Exit.DONE if show_what_if(screen, answer) else Exit.REFUSED

    return talk(common, work)


def _ask(file: str, total: dict[str, str] | None) -> Plan | PlanRefused | None:
    """Have a process of the fair-share service compute the plan. Return None if the process failed; it has printed why."""
    require("analysis", "`headrace plan FILE`")
    argv = [sys.executable, "-P", "-m", "headrace_fair_share.plan", file]
    if total is not None:
        argv.append(msgspec.json.encode(total).decode())
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
    if done.returncode not in _ANSWERED:
        return None
    answer: Plan | PlanRefused = msgspec.json.decode(done.stdout, type=Plan | PlanRefused)
    return answer


def _show(screen: Screen, answer: Plan | PlanRefused | None, resource: str | None) -> int:
    match answer:
        case None:
            screen.say("the plan could not be computed", style="red")
            return Exit.FAILED
        case PlanRefused():
            for problem in answer.problems:
                screen.say(problem.text(answer.file), style="red", whole=True)
            return Exit.USAGE
        case Plan():
            table = plan_table(answer, resource, screen.width)
            if screen.json:
                screen.show(answer, table)
                return Exit.DONE
            screen.print(plan_title(answer, resource), "", table)
            notes = plan_notes(answer)
            if notes:
                screen.print("", *notes)
            return Exit.DONE
        case _:
            assert_never(answer)
