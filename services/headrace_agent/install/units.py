"""The texts of the units of systemd that run the agent of a node and its runner. Pure.

The runner has a unit of its own, with a delegated cgroup, so that it and its jobs live on when the agent is restarted or crashes.
In one unit they could not: systemd starts the next agent in the unit's cgroup, which takes no process while it shares out its
memory and cores to the groups of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.errors import BadInput

#: The slice in which both run, on which the path of the runner's cgroup depends.
_SLICE: Final = "system.slice"
_CGROUPS: Final = "/sys/fs/cgroup"
#: What an agent needs to stop beside the time for its jobs: their last ends, and the end of the runner.
_AGENT_STOP_S: Final = 15
#: The runner interrupts jobs by itself where no agent told it to.
_RUNNER_STOP_S: Final = 30

_AGENT: Final = """\
# Written by `headrace agent install`. Put changes of your own into a drop-in: systemctl edit {name}
[Unit]
Description=Headrace agent of node {node}
Wants=network-online.target {runner}
After=network-online.target {runner}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
Environment=HEADRACE_AGENT_STARTS_RUNNER=false
{account}UMask=0077
Slice={slice}
# `systemctl stop` interrupts the jobs. They run on at their runner while the agent is restarted.
RestartKillSignal=SIGUSR2
TimeoutStopSec={stop_s}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""

_RUNNER: Final = """\
# Written by `headrace agent install`. Put changes of your own into a drop-in: systemctl edit {name}
[Unit]
Description=Headrace runner of node {node}, which has the jobs
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
{account}UMask=0077
Slice={slice}
Delegate=yes
# A job that needs too much memory is killed alone.
OOMPolicy=continue
# All jobs together leave processes for the rest of the host. The setting job_pids bounds each job.
TasksMax=80%
KillMode=mixed
TimeoutStopSec={stop_s}
Restart=on-failure
RestartSec=1
"""


class Unit(msgspec.Struct, frozen=True):
    """A unit by its name, with its text."""

    name: str
    text: str


def agent_unit_name(node: str) -> str:
    """The unit of the agent of a node."""
    return f"headrace-agent-{node}.service"


def runner_unit_name(node: str) -> str:
    """The unit of its runner."""
    return f"headrace-runner-{node}.service"


def cgroup_of(unit_name: str) -> str:
    """The cgroup that systemd delegates to a unit."""
    return f"{_CGROUPS}/{_SLICE}/{unit_name}"


def agent_unit(node: str, command: Sequence[str], account: str, stop_timeout_ms: int | None) -> Unit:
    """The unit of an agent, root without an account. A timeout of None lets jobs end when it is stopped. Raises `BadInput`."""
    return Unit(
        agent_unit_name(node),
        _AGENT.format(
            name=agent_unit_name(node),
            node=node,
            runner=runner_unit_name(node),
            command=_command_line(command),
            account=_user(account),
            slice=_SLICE,
            stop_s="infinity" if stop_timeout_ms is None else -(-stop_timeout_ms // 1000) + _AGENT_STOP_S,
        ),
    )


def runner_unit(node: str, command: Sequence[str], account: str) -> Unit:
    """The unit of a runner. Without an account it is root. Raises `BadInput`."""
    return Unit(
        runner_unit_name(node),
        _RUNNER.format(
            name=runner_unit_name(node),
            node=node,
            command=_command_line(command),
            account=_user(account),
            slice=_SLICE,
            stop_s=_RUNNER_STOP_S,
        ),
    )


def _user(account: str) -> str:
    return f"User={account}\n" if account else ""


def _command_line(words: Sequence[str]) -> str:
    """The words as systemd reads them back. Raises `BadInput` for what no unit can say."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if not word.isprintable():
        raise BadInput("a path or setting for the unit", word, "printable letters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or " " in word or "'" in word or ";" in word or not word else word
