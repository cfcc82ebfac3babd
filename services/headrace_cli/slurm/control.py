"""`scancel`, `sinfo` and `scontrol`: end, hold and requeue jobs, and show what the cluster has."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from headrace.client import Client, Refused
from headrace.client.asking import at_once
from headrace.errors import BadInput
from headrace.runtime.clock import SystemClock
from headrace.suggestions import near
from headrace.wire.nodes import NodeView
from headrace_cli.slurm.command_line import Given, NoCounterpart
from headrace_cli.slurm.jobs import LIVE
from headrace_cli.slurm.nodes import (
    LONG_SINFO,
    NODES_SINFO,
    SINFO_LETTERS,
    USUAL_SINFO,
    Partition,
    groups_of,
    node_text,
    partition_text,
    partitions_of,
)
from headrace_cli.slurm.numbers import JobName, operation_of, parse_jobs
from headrace_cli.slurm.printing import parse_letters, rows, show_job
from headrace_cli.slurm.query import named_jobs, parse_states, wanted
from headrace_cli.slurm.request import CLUSTER
from headrace_cli.slurm.start_script import CAN_REQUEUE, REQUEUE_SIGNAL
from headrace_cli.slurm.submit import pools_file, say
from headrace_cli.slurm.values import parse_hosts

#: Options of scancel that choose jobs.
_CHOOSING: Final = ("user", "me", "name", "jobname", "account", "partition", "state", "nodelist")
#: Version of Slurm whose options and formats these commands have.
VERSION: Final = "slurm 24.05.0"
#: What `scontrol show config` prints. Admission keeps the last 10,000 operations, so ended jobs stay visible for longer than `MinJobAge`.
_CONFIG: Final = {
    "ClusterName": CLUSTER,
    "MaxArraySize": "1000000",
    "MinJobAge": "300 sec",
    "SLURM_VERSION": VERSION.partition(" ")[2],
}


async def scancel(client: Client, given: Given) -> int:
    """End the named jobs, or all live jobs that the options choose. Return the exit status."""
    names = parse_jobs(given.words, "scancel")
    if not names and not any(map(given.has, _CHOOSING)):
        raise BadInput.because(
            "scancel",
            "no job is named. Name jobs by number, or use --user, --me, --name, --state, --partition or --account",
        )
    whole = [name._replace(indexes=None) for name in names]
    nodes, states = given.listed("nodelist"), parse_states(given.listed("state"), "--state") or LIVE
    found = await named_jobs(client, whole, wanted(given, client.user), live=not names, each_task=True)
    live = [job for job in found.jobs if job.state in LIVE]
    chosen = {
        (job.number, job.task)
        for job in live
        if job.state in states
        and (not nodes or job.node in nodes)
        and (not names or any(name.has(job.number, job.task) for name in names))
    }
    numbers = sorted({number for number, _ in chosen})
    for job in live:
        if job.number in numbers and (job.number, job.task) not in chosen:
            raise NoCounterpart(
                f"the end of some tasks of array {job.number}", f"scancel {job.number}, which ends all tasks"
            )
    status = 0
    for number in numbers:
        status |= await _each(number, lambda operation: client.abort(operation, "scancel"), "scancel")
    for missing in found.missing:
        if not given.has("quiet"):
            say("scancel", f"error: Kill job error on job id {missing.number}: Invalid job id specified")
        status = 1
    return status


async def _each(number: int, ask: Callable[[str], Awaitable[object]], command: str) -> int:
    """Ask for a change of one job. Return 1 after a refusal, which is printed, and 0 otherwise."""
    try:
        await ask(operation_of(number))
    except Refused as refused:
        say(command, f"error: job {number}: {refused}")
        return 1
    return 0


async def sinfo(client: Client, given: Given) -> int:
    """Print partitions and nodes. Return the exit status."""
    usual = LONG_SINFO if given.has("long") else NODES_SINFO if given.has("Node") else USUAL_SINFO
    parts = parse_letters(given.one("format") or os.environ.get("SINFO_FORMAT") or usual, SINFO_LETTERS, "--format")
    partitions = await _partitions(client)
    if names := given.listed("partition"):
        partitions = [each for each in partitions if each.name in names]
    if text := given.one("nodes"):
        hosts = parse_hosts(text, "--nodes")
        partitions = [each._replace(nodes=[node for node in each.nodes if node.node in hosts]) for each in partitions]
    states = [each.lower() for each in given.listed("states")]
    each_node = given.has("Node") or given.has("exact")
    for line in rows(
        parts, groups_of(partitions, each_node=each_node, states=states), header=not given.has("noheader")
    ):
        print(line)
    return 0


async def _partitions(client: Client) -> list[Partition]:
    trees = [str(each.tree) for each in (await client.trees.list()).trees]
    lists = await at_once(client.nodes, trees)
    return partitions_of(pools_file(os.environ), {tree: lists[tree].nodes for tree in trees}, client.trees.own)


async def scontrol(client: Client, given: Given) -> int:
    """Carry out one command of scontrol. Return the exit status."""
    commands: dict[str, Callable[[Client, Given, list[str]], Awaitable[int]]] = {
        "show": _show,
        "hold": _hold,
        "uhold": _hold,
        "suspend": _hold,
        "release": _release,
        "resume": _release,
        "requeue": _requeue,
        "ping": _ping,
    }
    word, *words = given.words or [""]
    run = commands.get(word.lower())
    if run is None:
        hint = near(word, commands)
        raise BadInput("scontrol", word, f"did you mean {hint[0]}?" if hint else f"one of {', '.join(commands)}")
    return await run(client, given, words)


async def _ping(client: Client, _: Given, __: list[str]) -> int:
    await client.trees.list()
    print("Slurmctld(primary) is UP")
    return 0


async def _show(client: Client, given: Given, words: list[str]) -> int:
    kind, *names = words or [""]
    kind, equals, name = kind.partition("=")
    names, one_line, status = ([name] if equals else []) + names, given.has("oneliner"), 0
    match kind.lower().rstrip("s"):
        case "job" | "jobid":
            found = await named_jobs(client, parse_jobs(names, "scontrol show job"), detail=bool(names))
            for job in found.jobs:
                print(show_job(job, SystemClock().wall_ms(), one_line=one_line), end="\n\n" if not one_line else "\n")
            status = _missing("slurm_load_jobs", "job id", [str(each.number) for each in found.missing])
        case "partition":
            partitions = [each for each in await _partitions(client) if not names or each.name in names]
            for partition in partitions:
                print(partition_text(partition, one_line=one_line), end="\n\n" if not one_line else "\n")
            status = _missing(
                "slurm_load_partitions", "partition name", _unknown(names, [each.name for each in partitions])
            )
        case "node":
            hosts = [host for name in names for host in parse_hosts(name, "scontrol show node")]
            nodes = [node for node in await _nodes(client) if not hosts or node.node in hosts]
            for node in nodes:
                print(node_text(node, one_line=one_line))
            status = _missing("slurm_load_nodes", "node name", _unknown(hosts, [node.node for node in nodes]))
        case "hostname":
            for host in parse_hosts(
                names[0] if names else os.environ.get("SLURM_JOB_NODELIST", ""), "scontrol show hostnames"
            ):
                print(host)
        case "config":
            for key, value in _CONFIG.items():
                print(f"{key:<23} = {value}")
        case _:
            raise NoCounterpart(f"scontrol show {kind}", "show job, node, partition, config or hostnames")
    return status


async def _nodes(client: Client) -> list[NodeView]:
    return list({node.node: node for partition in await _partitions(client) for node in partition.nodes}.values())


def _unknown(names: Sequence[str], known: Sequence[str]) -> list[str]:
    return [name for name in names if name not in known]


def _missing(command: str, what: str, names: list[str]) -> int:
    for _ in names:
        say(command, f"error: Invalid {what} specified")
    return 1 if names else 0


async def _hold(client: Client, _: Given, words: list[str]) -> int:
    return await _change(words, "scontrol hold", client.suspend)


async def _release(client: Client, _: Given, words: list[str]) -> int:
    return await _change(words, "scontrol release", client.resume)


async def _requeue(client: Client, _: Given, words: list[str]) -> int:
    own, pid = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_TASK_PID", "")
    if own and own in [str(name.raw) for name in parse_jobs(words, "scontrol requeue")]:
        if CAN_REQUEUE not in os.environ:
            raise NoCounterpart(
                "scontrol requeue by the job itself, without sbatch --signal",
                "sbatch --signal; a job may requeue itself after that signal",
            )
        os.kill(int(pid), REQUEUE_SIGNAL)
        return 0

    async def again(operation: str) -> None:
        await client.suspend(operation, abort_running_jobs=True)
        await client.resume(operation)

    return await _change(words, "scontrol requeue", again)


async def _change(words: list[str], place: str, ask: Callable[[str], Awaitable[object]]) -> int:
    names: list[JobName] = parse_jobs(words, place)
    if not names:
        raise BadInput.because(place, "no job is named. Name at least one job by its number")
    status = 0
    for name in names:
        if name.indexes is not None:
            raise NoCounterpart(
                f"{place} of some tasks of array {name.number}", f"the number of the array, {name.number}"
            )
        status |= await _each(name.number, ask, "scontrol")
    return status
