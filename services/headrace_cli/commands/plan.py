"""`headrace plan`: what a tree that stands in a file comes to, without any server.

The algorithm belongs to the fair-share service, and services never import each other: its own process computes, this one shows.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Literal, assert_never

import msgspec
from cyclopts import Parameter

from headrace.wire.plan import Plan, PlanRefused
from headrace_cli.exit_statuses import Exit
from headrace_cli.pools.key_values import parse_figures
from headrace_cli.session import Json
from headrace_cli.show.plans import plan_notes, plan_table, plan_title
from headrace_cli.show.screen import Screen

#: The answer of the process that computes.
_ANSWERED = (0, 2)


def plan(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    resource: Literal["cpu", "memory", "gpu", "network", "user_slots"] | None = None,
    total: str | None = None,
    json: Json = False,
) -> int:
    """Compute the shares of a tree of pools and operations that stands in a file. Asks no server, changes nothing.

    Figures are those of each element's dominant resource, unless `--resource` names one: what it wants, what it is guaranteed, what it
    is owed (the fair share, as an amount and as a share of the cluster), and which parts of that come from its strong guarantee, from
    its integral guarantee and by weight.

    The last column says what binds an element: `met` it is owed all that it wants, `limit` its own or one above it, `fifo` those
    before it, `gang` it gets all or nothing, the name of a resource that is handed out, `no` and a resource that the cluster lacks.

    Pools marked with `!` are told of below the table: errors of the algorithm, and guarantees that are not in force as configured.

    Examples:

        headrace plan tree.yaml

        headrace plan tree.yaml --resource memory

        headrace plan tree.yaml --json | jq '.elements[] | {path, fair_resources}'

        ./make-tree | headrace plan - --resource cpu

        headrace pool export --options | headrace plan - --total cpu=100,memory=400G

    A file:

        total: {cpu: 100, memory: 400G}

        pools: {research: {weight: 2, strong_guarantee_resources: {cpu: 40}}, adhoc: {}}

        operations: {train: {pool: research, job_count: 80, resources: {cpu: 1, memory: 2G}}}

    Parameters
    ----------
    file
        YAML or JSON; `-` reads standard input. docs/examples/plan.yaml is one with everything in it.
    resource
        Show figures of this resource.
    total
        Share this, such as `cpu=100,memory=400G`, in place of the `total` of the file.
    json
        Print everything as JSON (cores in `cpu`, bytes in `memory`; shares are fractions of the cluster).
    """
    screen = Screen(json=json)
    return _show(screen, _ask(file, parse_figures("--total", total) if total is not None else None), resource)


def _ask(file: str, total: dict[str, str] | None) -> Plan | PlanRefused | None:
    """Asks the process of the fair-share service. None if it broke, of which it has said why."""
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
