"""The texts of the systemd units that run the NATS server, the services and the consumers of a cluster folder. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.systemd.unit_text import SystemdUnit, command_line, quoted
from headrace_cli.cluster.consumers import VARIABLES_FILE

#: Account of all processes unless another is named.
SERVICES_ACCOUNT: Final = "headrace"
#: Name of the server, and of its folder, in a cluster with only one server.
_ONLY_SERVER: Final = "nats"

_UNIT: Final = """\
# Written by `headrace cluster install`. Put changes of your own into a drop-in: systemctl edit {name}
[Unit]
Description={description}
Wants=network-online.target
After={after}
StartLimitIntervalSec=0

[Service]
Type=notify
{access}WatchdogSec={watchdog_s}
ExecStart={command}
{more}User={account}
UMask=0077
Restart=always
RestartSec=1
TimeoutStopSec=20
NoNewPrivileges=yes
CapabilityBoundingSet=
LockPersonality=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectControlGroups=yes
ProtectHome=read-only
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictSUIDSGID=yes
# Of the folder of the cluster, the process sees only its own part.
TemporaryFileSystem={cluster}:ro
{bind}={folder}

[Install]
WantedBy=multi-user.target
"""
#: Seconds without a sign of life after which systemd restarts a process. A computation for a large cluster may block the event loop for
#: some seconds.
_WATCHDOG_S: Final = 60
_RELOAD: Final = "ExecReload=/bin/kill -HUP $MAINPID\n"


class ProcessKind(enum.StrEnum):
    """The kinds of processes. The values appear in the descriptions of the units."""

    SERVER = "NATS server"
    SERVICE = "service"
    CONSUMER = "consumer"


class ClusterProcess(msgspec.Struct, frozen=True):
    """A process of a cluster on this host."""

    #: Name of the process's folder, such as `nats`, `fair_share` or `notify`.
    name: str
    kind: ProcessKind
    command: Sequence[str]

    @property
    def is_server(self) -> bool:
        """True for the NATS server."""
        return self.kind is ProcessKind.SERVER

    @property
    def unit_name(self) -> str:
        """The name of the process's systemd unit."""
        is_further = self.is_server and self.name != _ONLY_SERVER
        return f"headrace-{f'{_ONLY_SERVER}-' if is_further else ''}{self.name.replace('_', '-')}.service"


def runs_folder(text: str, folder: Path) -> bool:
    """True if the text is the unit of a process with this folder."""
    return any(line.endswith(f"Paths={quoted(str(folder))}") for line in text.splitlines() if line.startswith("Bind"))


def cluster_unit(process: ClusterProcess, cluster: Path, account: str, servers: Sequence[str]) -> SystemdUnit:
    """Return the unit of a process of the folder `cluster`. Services and consumers start after the units `servers`. Raises `BadInput`."""
    network, folder = "network-online.target", cluster / process.name
    # systemd takes the path in `EnvironmentFile` without quotes. It reads the file as root, before it starts the process.
    variables = f"EnvironmentFile=-{folder / VARIABLES_FILE}\n".replace("%", "%%")
    more = {ProcessKind.SERVER: _RELOAD, ProcessKind.CONSUMER: variables}
    text = _UNIT.format(
        name=process.unit_name,
        description=f"Headrace: {process.kind} {process.name}",
        after=network if process.is_server else " ".join([network, *servers]),
        command=command_line(process.command),
        watchdog_s=_WATCHDOG_S,
        # Another process of the unit watches the server, which gives no signs of life by itself.
        access="NotifyAccess=all\n" if process.is_server else "",
        more=more.get(process.kind, ""),
        account=account,
        cluster=quoted(str(cluster)),
        # The server and the consumers keep their state in their folders.
        bind="BindReadOnlyPaths" if process.kind is ProcessKind.SERVICE else "BindPaths",
        folder=quoted(str(folder)),
    )
    return SystemdUnit(process.unit_name, text)
