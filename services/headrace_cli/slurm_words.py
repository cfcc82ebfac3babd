"""Hints for users who type commands and options of Slurm: what to type in Headrace instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_COMMANDS: Final = {
    "sacct": "op list",
    "sbatch": "run",
    "scancel": "op abort",
    "scontrol": "op get",
    "sdiag": "service list",
    "seff": "op efficiency",
    "sinfo": "node list",
    "sprio": "pool tree",
    "squeue": "op list",
    "sreport": "pool volume",
    "srun": "run --follow",
    "sshare": "pool tree",
}
_OPTIONS: Final = {
    "--account": "--pool",
    "--array": "--jobs or --indexes",
    "--chdir": "--cwd",
    "--constraint": "--node-filter",
    "--cpus-per-task": "--cpu",
    "--export": "--env",
    "--gpus": "--gpu",
    "--gres": "--gpu",
    "--input": "--stdin",
    "--job-name": "--title",
    "--mem": "--memory",
    "--mem-per-cpu": "--memory",
    "--name": "--title",
    "--nice": "--weight",
    "--nodelist": "--node-filter",
    "--exclude": "--node-filter",
    "--ntasks": "--jobs",
    "--partition": "--pool",
    "--priority": "--weight",
    "--qos": "--pool",
    "--signal": "--interruptible, --interrupt-signal and --interruption-timeout",
    "--test-only": "--dry-run",
}
#: Options of Slurm without an equivalent option, each with what to do instead.
_DONE_OTHERWISE: Final = {
    "--begin": "`at` or cron on your machine, for now: operations have no start time",
    "--exclusive": "--cpu with all cores of a node: a node is not given out as a whole",
    "--hold": "`headrace op suspend` after the start",
    "--mail-type": "`headrace op wait` and a command of your own: nothing is mailed",
    "--mail-user": "`headrace op wait` and a command of your own: nothing is mailed",
    "--no-requeue": "--tries 1 for failures; a preempted job is always requeued",
    "--parsable": "the first line of stdout, which is the id, or --json",
    "--requeue": "--tries for failures; a preempted job is always requeued",
    "--wrap": "sh -c '…' after --",
    "--dependency": "--after ID for afterok, --after ID:failed for afternotok, --after ID:any for afterany, --after-each ID for aftercorr",
    "--time": "--time-limit with a unit, such as `--time-limit 2h`",
    "--pty": "`headrace shell`",
    "--nodes": "--gang, for jobs that start together or not at all; each job runs on one node",
}

#: A time limit as Slurm's `-t` has it: minutes, or hours, minutes and seconds, perhaps after days.
_TIME_OF_SLURM: Final = re.compile(r"\d+(-\d+)?(:\d\d){0,2}")


def time_as_title(title: str) -> str:
    """Return a hint if the title of an operation is a time limit of Slurm's `-t`, or an empty string.

    >>> time_as_title("2:00:00")
    "the title is '2:00:00'; instead of Slurm's -t, use --time-limit with a unit, such as `--time-limit 2h`"
    """
    is_time = _TIME_OF_SLURM.fullmatch(title) is not None
    return f"the title is {title!r}; instead of Slurm's -t, use {_DONE_OTHERWISE['--time']}" if is_time else ""


def said_here(words: Sequence[str]) -> str:
    """Return a hint for the first word of Slurm in a command line, or an empty string if it has none.

    >>> said_here(["squeue", "-u", "ada"])
    "Slurm's `squeue` is `headrace op list` in Headrace"
    """
    if words[:1] != ["run"]:
        command = _COMMANDS.get(words[0], "") if words else ""
        return f"Slurm's `{words[0]}` is `headrace {command}` in Headrace" if command else ""
    for word in words[1:]:
        if word == "--":
            break
        name = word.partition("=")[0]
        if here := _OPTIONS.get(name) or _DONE_OTHERWISE.get(name):
            return f"instead of Slurm's {name}, use {here}"
    return ""
