"""The configuration of the NATS server, and the settings of services and agents.

All limits are written out here, and they are generous. Without them the services would use their own defaults, which are cautious, for a
shared installation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.access.permissions import MOST_SUBSCRIPTIONS_OF_A_SERVICE
from headrace.obs.trace_sinks import Traces
from headrace.pools.new_tree import NEW_TREE_OPTIONS
from headrace_cli.up.node_option import NodeOption
from headrace_cli.up.state_folder import StateFolder

#: Largest number of operations and of pools. On one person's machine no operation needs to wait for such a limit; users can set lower
#: limits with `headrace pool set`.
_MANY_OPERATIONS: Final = 50_000
_MANY_POOLS: Final = 1_000
#: Largest number of connections to one server. Each node has one, also in a fleet of 10,000 nodes, and so has each client. A connection
#: takes about 100 kB.
_MOST_CONNECTIONS: Final = 50_000
#: Default port of the server. It differs from the default port of NATS, because another NATS server of the user may occupy that port.
DEFAULT_PORT = 4270
#: Default port of the web service.
DEFAULT_WEB_PORT: Final = 8040
#: Seconds that one TLS handshake may take. It takes long when many processes of `headrace up` begin a handshake at the same time on a
#: loaded machine.
_TLS_TIMEOUT_S: Final = 10

Table = Mapping[str, str | int | float | bool | list[str]]


def nats_configuration(store: Path, listen: str, admitted: str, more: str = "", *, name: str = "headrace") -> str:
    """Return the configuration of a server. `admitted` is the part about who is admitted; `more` is appended."""
    return f"""# Written by `headrace`, again at every start.
server_name: {json.dumps(name)}
listen: "{listen}"
max_payload: 1MB
# A connection that does not read is closed when this much data waits for it. The server may hold this much for each connection.
max_pending: 64MB
# Limit for one connection. A service has two subscriptions for each person and each kind of request.
max_subscriptions: {MOST_SUBSCRIPTIONS_OF_A_SERVICE}
# Limit for all parties together.
max_connections: {_MOST_CONNECTIONS}
write_deadline: "10s"
jetstream {{
  store_dir: {json.dumps(str(store))}
  # An answer means that the message is on the disk.
  sync_interval: always
  # Only the disk is the limit. With the default, a server that starts on a nearly full disk refuses every write, even later.
  max_file_store: 1000TB
}}
{admitted}{more}"""


def server_tls(certificate: Path, key: Path) -> str:
    """Return the part of a server's configuration that makes it speak TLS from the first byte on."""
    files = f"cert_file: {json.dumps(str(certificate))}, key_file: {json.dumps(str(key))}"
    # Without `handshake_first`, the connection of a client that must use TLS would begin unencrypted.
    return f"tls {{ {files}, handshake_first: true, timeout: {_TLS_TIMEOUT_S} }}\n"


def server_url(port: int) -> str:
    """Return the address of the server of `headrace up`."""
    return f"tls://127.0.0.1:{port}"


def service_settings(common: Table, services: Mapping[str, Table]) -> str:
    """Return the settings of services as TOML: first the common settings, then the settings of each service."""
    limits: Mapping[str, Table] = {"admission": {"max_operation_count": _MANY_OPERATIONS}}
    tables: dict[str, Table] = {service: {**own, **limits.get(service, {})} for service, own in services.items()}
    if "fair_share" in tables:
        tables |= _new_tree_options()
    return to_toml({"common": common, **tables})


def _new_tree_options() -> dict[str, Table]:
    place = "fair_share.new_tree_options"
    found: dict[str, Table] = {
        place: {
            "max_operation_count": _MANY_OPERATIONS,
            "max_running_operation_count": _MANY_OPERATIONS,
            "max_operation_count_per_pool": _MANY_OPERATIONS,
            "max_running_operation_count_per_pool": _MANY_OPERATIONS,
            "max_ephemeral_pools_per_user": _MANY_POOLS,
            **{name: value for name, value in NEW_TREE_OPTIONS.items() if not isinstance(value, Mapping)},
        }
    }
    return found | {f"{place}.{name}": value for name, value in NEW_TREE_OPTIONS.items() if isinstance(value, Mapping)}


def agent_settings(
    state: StateFolder, port: int, log_level: str, node: NodeOption, credential: Path, traces: Traces
) -> str:
    """Return the settings of one node's agent, with the file of its credential."""
    folder = state.agents / node.node
    agent: dict[str, str | int | float | bool | list[str]] = {
        "node": node.node,
        "state_folder": str(folder),
        # Accept the agent on whatever machine it runs. The check of the machine would add nothing, because no other machine has this
        # server's credentials, and it could refuse the agents of a restored backup, which may lack their folders.
        "machine": "*",
        "credential_file": str(credential),
        # Jobs run under the agent's account, even if that is root, as in a container. That gives no user further rights: a user with this
        # machine's credential can act as that account anyway.
        "users": "agent",
    }
    agent.update(node.amounts)
    if node.tags:
        agent["tags"] = node.tags
    if node.gpus:
        agent["gpus"] = node.gpus
    if node.containers:
        agent["containers"] = node.containers
    common = {**common_settings(state, port, log_level, traces), "tree": node.tree or "default"}
    return to_toml({"common": common, "agent": agent})


def common_settings(state: StateFolder, port: int, log_level: str, traces: Traces) -> Table:
    """Return the settings of all processes on one machine."""
    return {
        "nats_url": server_url(port),
        "ca_file": str(state.authority),
        "log_level": log_level,
        # Everybody who can connect holds the credential of this machine.
        "administrators": "*",
        **{f"trace_{name}": value for name, value in msgspec.to_builtins(traces).items()},
    }


def to_toml(tables: Mapping[str, Table]) -> str:
    """Return tables of plain values as TOML. A JSON string is also a TOML string."""
    lines: list[str] = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        lines.extend(f"{key} = {json.dumps(value, ensure_ascii=True)}" for key, value in table.items())
        lines.append("")
    return "\n".join(lines)
