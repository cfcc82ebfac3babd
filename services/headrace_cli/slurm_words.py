"""Hints for users who type commands and options of Slurm, or commands of YARN: what to type in Headrace instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_COMMANDS: Final = {
    "sacct": "op list",
    "sacctmgr": "pool list",
    "salloc": "shell",
    "sattach": "op logs ID --follow",
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
    "sstat": "op get ID --jobs",
}
#: Commands of YARN that Headrace does not have, with or without `yarn` before them.
_COMMANDS_OF_YARN: Final = {
    "app": "op list --live",
    "application": "op list --live",
    "applicationattempt": "op get ID --jobs",
    "container": "op get ID --jobs",
    "jar": "run",
    "queue": "pool list",
    "rmadmin": "pool import",
    "schedulerconf": "pool set",
}
#: Commands of YARN whose names are commands of Headrace too.
_COMMANDS_AFTER_YARN: Final = {"cluster": "node list", "logs": "op logs", "node": "node list", "top": "top"}
#: Options of `yarn application`, `yarn queue` and `yarn rmadmin` that decide what the command does.
_OPTIONS_OF_YARN: Final = {
    "-appStates": "op list --in-state",
    "-changeQueue": "op set ID pool=NAME",
    "-kill": "op abort",
    "-movetoqueue": "op set ID pool=NAME",
    "-updatePriority": "op set ID weight=NUMBER",
}
_COMMANDS_OF_OTHERS: Final = {
    "bjobs": "op list --live",
    "bkill": "op abort",
    "bsub": "run",
    "job": "op get",
    "jobs": "op list",
    "module": "run --env NAME=VALUE",
    "qdel": "op abort",
    "qstat": "op list --live",
    "qsub": "run",
    "submit": "run",
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
    "--mail-type": "`headrace notify` with a rule for operation_ended",
    "--mail-user": "`headrace notify`: addresses are in its file of rules",
    "--no-requeue": "--tries 1 for failures; a preempted job is always requeued",
    "--parsable": "the first line of stdout, which is the id, or --json",
    "--requeue": "--tries for failures; a preempted job is always requeued",
    "--wrap": "sh -c '…' after --",
    "--dependency": "--after ID for afterok, --after ID:failed for afternotok, --after ID:any for afterany, --after-each ID for aftercorr",
    "--time": "--time-limit with a unit, such as `--time-limit 2h`",
    "--pty": "`headrace shell`",
    "--nodes": "--gang, for jobs that start together or not at all; each job runs on one node",
}
#: Options of `docker run`, `kubectl` and similar commands.
_OPTIONS_OF_OTHERS: Final = {"--cpus": "--cpu", "--queue": "--pool", "--replicas": "--jobs", "--workdir": "--cwd"}
#: Options with which other commands return at once, as `headrace run` does without them.
_RETURN_AT_ONCE: Final = frozenset({"--async", "--background", "--bg", "--detach", "--no-wait"})

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
    """Return a hint for the first word of another scheduler in a command line, or an empty string if there is none.

    >>> said_here(["squeue", "-u", "ada"])
    "Slurm's `squeue` is `headrace op list` in Headrace"
    >>> said_here(["yarn", "application", "-kill", "application_17"])
    "YARN's `application -kill` is `headrace op abort` in Headrace"
    """
    if words[:1] != ["run"]:
        return _command_here(words)
    for word in words[1:]:
        if word == "--":
            break
        name = word.partition("=")[0]
        if here := _OPTIONS.get(name) or _DONE_OTHERWISE.get(name):
            return f"instead of Slurm's {name}, use {here}"
        if here := _OPTIONS_OF_OTHERS.get(name):
            return f"instead of {name}, use {here}"
        if name in _RETURN_AT_ONCE:
            return f"leave {name} out: `headrace run` returns as soon as the operation is recorded, unless --wait or --follow is given"
    return ""


def _command_here(words: Sequence[str]) -> str:
    typed = words[0] if words else ""
    if command := _COMMANDS.get(typed):
        return f"Slurm's `{typed}` is `headrace {command}` in Headrace"
    if command := _COMMANDS_OF_OTHERS.get(typed):
        return f"instead of `{typed}`, use `headrace {command}`"
    after_yarn = typed == "yarn" and len(words) > 1
    typed, *options = words[1:] if after_yarn else [typed, *words[1:]]
    command = _COMMANDS_OF_YARN.get(typed) or (_COMMANDS_AFTER_YARN.get(typed) if after_yarn else None)
    if not command:
        return ""
    for option in options:
        if one := _OPTIONS_OF_YARN.get(option):
            return f"YARN's `{typed} {option}` is `headrace {one}` in Headrace"
    return f"YARN's `{typed}` is `headrace {command}` in Headrace"
