"""Has systemd run the NATS server, the services and the consumers of a cluster folder on this host. A second run changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.access.routes import PartyKind
from headrace.client.places.endpoint import CREDENTIAL_FILE, ENDPOINT_FILE
from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.suggestions import hint
from headrace.systemd.systemctl import is_outdated, is_true, systemctl
from headrace.systemd.unit_files import (
    CannotInstall,
    check_reach,
    check_unit_folder,
    give,
    installed_text,
    write_unit,
)
from headrace.systemd.unit_text import SystemdUnit
from headrace_cli.cluster.consumers import Consumer
from headrace_cli.cluster.folder import SERVER_FILE, SETTINGS_FILE, STORE_FOLDER
from headrace_cli.cluster.units import ClusterProcess, ProcessKind, cluster_unit, runs_folder
from headrace_cli.cluster.watched_server import LISTEN
from headrace_cli.up.commands import find_nats_server

#: First words of the command line that runs a server with a watcher beside it. The watcher tells systemd that the server is alive.
_WATCHED: Final = (sys.executable, "-m", "headrace_cli.cluster.watched_server")
#: Folders that systemd replaces by empty private folders for these units. The folder of a cluster must not be there, because
#: the processes could not see it.
_PRIVATE: Final = (Path("/tmp"), Path("/var/tmp"), Path("/dev"))


class ClusterInstallation(msgspec.Struct, frozen=True):
    """The processes of a cluster that systemd runs on this host, their account, and the folder of the units."""

    cluster: Path
    processes: Sequence[ClusterProcess]
    account: str
    unit_folder: Path

    def units(self) -> list[SystemdUnit]:
        """Return the units, the server's first. Raises `BadInput`, also if several servers are to run on this host."""
        names = [each.name for each in self.processes]
        if sum(each.is_server for each in self.processes) > 1:
            fault = (
                f"{', '.join(names)} include more than one server, but each server has a host of its own. "
                "Name the processes of this host"
            )
            raise BadInput.because("--only", fault)
        servers = [each.unit_name for each in _processes(self.cluster) if each.is_server]
        return [cluster_unit(each, self.cluster, self.account, servers) for each in self.processes]


def chosen_processes(cluster: Path, only: Collection[str]) -> list[ClusterProcess]:
    """Return the processes with these names whose folders are in the folder `cluster`; all if `only` is empty. Raises `BadInput`."""
    found = _processes(cluster)
    if not found:
        expected = (
            f"a folder made by `headrace cluster init`, with nats/{SERVER_FILE} or the {SETTINGS_FILE} of a service"
        )
        raise BadInput("FOLDER", str(cluster), expected)
    names = [each.name for each in found]
    for name in only:
        if name not in names:
            raise BadInput("--only", name, hint(name, names))
    return [each for each in found if not only or each.name in only]


def install(installation: ClusterInstallation) -> Iterator[str]:
    """Install the units and start the processes, as root. Yield what was done, and a diff before a unit file is replaced.

    Raises `CannotInstall`, `NoSystemd`, `BadInput`, OSError.
    """
    wanted = installation.units()
    owner = _check(installation)
    place = installation.unit_folder
    for process in installation.processes:
        folder = installation.cluster / process.name
        if _own(folder, owner):
            yield f"{folder} now belongs to {owner.pw_name}, and no other account can read it"
    # Finish each unit before the next. If this command is interrupted while it waits for a process to stop, its next run sees which units
    # are still to be written, and restarts their processes. If all units were written first, these processes would keep running with their
    # former units.
    for unit in wanted:
        has_changed = installed_text(place, unit.name) != unit.text or is_outdated(unit.name)
        yield from write_unit(place, unit)
        if has_changed:
            systemctl("daemon-reload")
        yield _start(unit.name, has_changed=has_changed)


def uninstall(installation: ClusterInstallation) -> Iterator[str]:
    """Stop the processes, the server last, and remove their units, as root. Raises `CannotInstall`, `NoSystemd`, OSError."""
    place = installation.unit_folder
    there = [each.unit_name for each in reversed(installation.processes) if _is_installed(installation, each)]
    if not there:
        yield f"no unit of {installation.cluster} is in {place}: nothing to change"
        return
    for name in there:
        systemctl("stop", name)
        systemctl("disable", name)
        (place / name).unlink()
        yield f"{place / name} is removed"
    systemctl("daemon-reload")
    yield f"{installation.cluster} stays, with the state of the cluster"


def _processes(cluster: Path) -> list[ClusterProcess]:
    """Return all processes whose folders are in the folder `cluster`, the servers first. Raises `MissingExtra`."""
    configurations = sorted(cluster.glob(f"*/{SERVER_FILE}"))
    found = [
        ClusterProcess(file.parent.name, ProcessKind.SERVER, [*_WATCHED, find_nats_server(), "-c", str(file)])
        for file in configurations
    ]
    for name in (kind.value for kind in PartyKind if kind.is_service):
        file = cluster / name / SETTINGS_FILE
        if file.exists():
            command = [sys.executable, "-m", f"headrace_{name}", "--config", str(file)]
            found.append(ClusterProcess(name, ProcessKind.SERVICE, command))
    for consumer in Consumer:
        folder = cluster / consumer.value
        if (folder / ENDPOINT_FILE).exists():
            found.append(ClusterProcess(consumer.value, ProcessKind.CONSUMER, consumer.command(folder)))
    return found


def _is_installed(installation: ClusterInstallation, process: ClusterProcess) -> bool:
    """True if the unit of a process is installed. Raises `CannotInstall` if it runs something else, such as another cluster."""
    text, name = installed_text(installation.unit_folder, process.unit_name), process.unit_name
    if text is not None and not runs_folder(text, installation.cluster / process.name):
        raise CannotInstall(
            f"{installation.unit_folder / name} does not run {installation.cluster / process.name} and was not changed. If nothing "
            f"needs this unit any more, run `systemctl disable --now {name}` and remove the file"
        )
    return text is not None


def _start(name: str, *, has_changed: bool) -> str:
    """Enable a unit and start it, or restart it if its text changed. Return what was done. Raises `NoSystemd`."""
    is_enabled = is_true("is-enabled", name)
    if not is_enabled:
        systemctl("enable", name)
    if not is_true("is-active", name):
        systemctl("start", name)
        return f"{name} is enabled and started"
    if has_changed:
        systemctl("restart", name)
        return f"{name} is restarted"
    return f"{name} is installed and runs: nothing to change" if is_enabled else f"{name} is enabled"


def _check(installation: ClusterInstallation) -> pwd.struct_passwd:
    """Check what would keep the units from running, and return the account under which they run.

    Raises `CannotInstall`, `NoSystemd`, `BadInput`, `MissingExtra`.
    """
    name, cluster = installation.account, installation.cluster
    try:
        owner = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise CannotInstall(
            f"this host has no account {name}: make it with "
            f"`useradd --system --no-create-home --shell /usr/sbin/nologin {name}`, or name another account with `--account`"
        ) from None
    if owner.pw_uid == 0:
        raise CannotInstall(f"account {name} is the superuser. Name an account without privileges with `--account`")
    if ":" in str(cluster) or any(cluster.is_relative_to(each) for each in _PRIVATE):
        folders = ", ".join(map(str, _PRIVATE))
        raise BadInput("FOLDER", str(cluster), f"a folder without «:» in its path that is not below one of {folders}")
    if Path(sys.executable).is_relative_to(cluster):
        raise BadInput("FOLDER", str(cluster), f"a folder that does not contain the program {sys.executable}")
    if any(process.kind is ProcessKind.SERVICE for process in installation.processes):
        require("server", "`headrace cluster install`")
    if any(process.name == Consumer.WEB for process in installation.processes):
        require("web", "`headrace cluster install`")
    check_unit_folder(installation.unit_folder)
    for process in installation.processes:
        _is_installed(installation, process)
        folder = cluster / process.name
        _check_files(process, folder)
        check_reach(name, folder)
        if process.is_server and not is_true("is-active", process.unit_name):
            _check_address((folder / SERVER_FILE).read_text(encoding="utf-8"))
    return owner


def _check_files(process: ClusterProcess, folder: Path) -> None:
    """Check that the files of a process are complete and name this folder. Raises `CannotInstall`."""
    if process.kind is ProcessKind.CONSUMER:
        for name, words in Consumer(process.name).needed_files.items():
            if not (folder / name).exists():
                raise CannotInstall(
                    f"{folder / name} is missing. Put {words} there, or name the other processes with `--only`"
                )
        return
    file, named = (SERVER_FILE, STORE_FOLDER) if process.is_server else (SETTINGS_FILE, CREDENTIAL_FILE)
    if json.dumps(str(folder / named)) not in (folder / file).read_text(encoding="utf-8"):
        raise CannotInstall(
            f"{folder / file} names files in another folder. Move the cluster folder back to the path at which "
            "`headrace cluster init` made it, or run `headrace cluster init` again with its present path"
        )


def _check_address(configuration: str) -> None:
    """Check that a server can listen at its address. Raises `CannotInstall` if it cannot, for example if another server listens there."""
    for host, port in LISTEN.findall(configuration):
        address = host.strip("[]")
        try:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind((address, int(port)))
                trial.listen()
        except OSError as error:
            raise CannotInstall(
                f"the server cannot listen at {host}:{port} ({error.strerror}): stop the server that runs there already, or "
                "give another address by `headrace cluster init … --listen`"
            ) from None


def _own(folder: Path, owner: pwd.struct_passwd) -> bool:
    """Give a folder and all that it contains to an account, and close it to other accounts. True if anything was changed.

    Raises `CannotInstall`, OSError.
    """
    changed = False
    try:
        # Do not follow links: the account that made the folder of the cluster could have put a link to any folder there.
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise CannotInstall(f"{folder} is a file or a symbolic link, but must be a folder") from None
    try:
        for _, folders, files, descriptor in os.fwalk(".", dir_fd=top):
            for name in (".", *folders, *files):
                # A server that runs may have removed a file since the folder was listed.
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid != owner.pw_uid:
                        give(Path(name), owner.pw_uid, owner.pw_gid, dir_fd=descriptor)
                        changed = True
        if os.fstat(top).st_mode & 0o077:
            os.fchmod(top, 0o700)
            changed = True
    finally:
        os.close(top)
    return changed
