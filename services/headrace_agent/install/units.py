"""The texts of the systemd units that run the agent of a node and its runner. Pure.

The runner has a unit of its own with a delegated cgroup, so that the runner and its jobs survive a restart or crash of the agent. If both
were in one unit, the agent could not be restarted while jobs run: systemd would start the next agent in the unit's cgroup, and a cgroup
accepts no process while it distributes its memory and cores to the cgroups of the jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.systemd.unit_text import SystemdUnit, command_line

#: The systemd slice of both units; it is a part of the path of the runner's cgroup.
_SLICE: Final = "system.slice"
_CGROUPS: Final = "/sys/fs/cgroup"
#: Seconds that an agent may take to stop, in addition to the time for its jobs: to report the last ends, and to end the runner.
_AGENT_STOP_S: Final = 15
#: Seconds that the runner may take to stop. In this time it interrupts the jobs that still run because no agent ordered it to end them.
_RUNNER_STOP_S: Final = 30
#: Seconds without a sign of life after which systemd restarts an agent.
_AGENT_WATCHDOG_S: Final = 60
#: Seconds without a sign of life after which systemd restarts a runner. The time is longer than for an agent: a restart ends the jobs, and
#: the runner may only be waiting for a slow disk. If the agent runs, it ends a hung runner sooner than systemd does.
_RUNNER_WATCHDOG_S: Final = 180

_AGENT: Final = """\
# Written by `headrace agent install`. Put changes of your own into a drop-in: systemctl edit {name}
[Unit]
Description=Headrace agent of node {node}
Wants=network-online.target {runner}
After=network-online.target {runner}
StartLimitIntervalSec=0

[Service]
Type=notify
WatchdogSec={watchdog_s}
ExecStart={command}
Environment=HEADRACE_AGENT_STARTS_RUNNER=false
{account}UMask=0077
Slice={slice}
# `systemctl stop` interrupts the jobs. A restart sends this signal instead, and the jobs keep running under their runner.
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
Type=notify
WatchdogSec={watchdog_s}
ExecStart={command}
{account}UMask=0077
Slice={slice}
Delegate=yes
# A job that needs too much memory is killed alone.
OOMPolicy=continue
# All jobs together cannot use up the processes of the host. The setting job_pids bounds each job.
TasksMax=80%
KillMode=mixed
TimeoutStopSec={stop_s}
Restart=on-failure
RestartSec=1
"""


def agent_unit_name(node: str) -> str:
    """Return the name of the unit of a node's agent."""
    return f"headrace-agent-{node}.service"


def runner_unit_name(node: str) -> str:
    """Return the name of the unit of a node's runner."""
    return f"headrace-runner-{node}.service"


def cgroup_of(unit_name: str) -> str:
    """Return the path of the cgroup that systemd delegates to a unit."""
    return f"{_CGROUPS}/{_SLICE}/{unit_name}"


def agent_unit(node: str, command: Sequence[str], account: str, stop_timeout_ms: int | None) -> SystemdUnit:
    """Return the unit of an agent, which runs as root if `account` is empty. Raises `BadInput`.

    If `stop_timeout_ms` is None, `systemctl stop` waits until the jobs end by themselves.
    """
    return SystemdUnit(
        agent_unit_name(node),
        _AGENT.format(
            name=agent_unit_name(node),
            node=node,
            runner=runner_unit_name(node),
            command=command_line(command),
            account=_user(account),
            slice=_SLICE,
            watchdog_s=_AGENT_WATCHDOG_S,
            stop_s="infinity" if stop_timeout_ms is None else -(-stop_timeout_ms // 1000) + _AGENT_STOP_S,
        ),
    )


def runner_unit(node: str, command: Sequence[str], account: str) -> SystemdUnit:
    """Return the unit of a runner, which runs as root if `account` is empty. Raises `BadInput`."""
    return SystemdUnit(
        runner_unit_name(node),
        _RUNNER.format(
            name=runner_unit_name(node),
            node=node,
            command=command_line(command),
            account=_user(account),
            slice=_SLICE,
            watchdog_s=_RUNNER_WATCHDOG_S,
            stop_s=_RUNNER_STOP_S,
        ),
    )


def _user(account: str) -> str:
    return f"User={account}\n" if account else ""
