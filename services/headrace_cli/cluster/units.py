"""The texts of the systemd units that run the NATS server and the services of a cluster folder. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.systemd.unit_text import SystemdUnit, command_line, quoted

#: Account of the server and the services unless another is named.
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


class ClusterProcess(msgspec.Struct, frozen=True):
    """A process of a cluster on this host: the NATS server, or a service."""

    #: Name of its folder, such as `nats` or `fair_share`.
    name: str
    is_server: bool
    command: Sequence[str]

    @property
    def unit_name(self) -> str:
        """The name of its systemd unit."""
        is_further = self.is_server and self.name != _ONLY_SERVER
        return f"headrace-{f'{_ONLY_SERVER}-' if is_further else ''}{self.name.replace('_', '-')}.service"


def runs_folder(text: str, folder: Path) -> bool:
    """True if the text is the unit of a process with this folder."""
    return any(line.endswith(f"Paths={quoted(str(folder))}") for line in text.splitlines() if line.startswith("Bind"))


def cluster_unit(process: ClusterProcess, cluster: Path, account: str, servers: Sequence[str]) -> SystemdUnit:
    """Return the unit of a process of the folder `cluster`. A service starts after the units `servers`. Raises `BadInput`."""
    network = "network-online.target"
    text = _UNIT.format(
        name=process.unit_name,
        description=f"Headrace: {'NATS server' if process.is_server else 'service'} {process.name}",
        after=network if process.is_server else " ".join([network, *servers]),
        command=command_line(process.command),
        watchdog_s=_WATCHDOG_S,
        # Another process of the unit watches the server, which gives no signs of life by itself.
        access="NotifyAccess=all\n" if process.is_server else "",
        more=_RELOAD if process.is_server else "",
        account=account,
        cluster=quoted(str(cluster)),
        bind="BindPaths" if process.is_server else "BindReadOnlyPaths",
        folder=quoted(str(cluster / process.name)),
    )
    return SystemdUnit(process.unit_name, text)
