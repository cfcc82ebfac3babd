"""The commands `headrace cluster …`: prepare what services need before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import App, Parameter

from headrace.counted import counted
from headrace.ids import node_name
from headrace.server_urls import parse_server_urls
from headrace_cli.cluster.folder import ADMINISTRATOR, ClusterFolder, ClusterOptions
from headrace_cli.cluster.push import tell_server
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

app = App(name="cluster", help="Make credentials and settings for services in containers or on hosts.")

Nodes = Annotated[list[str] | None, Parameter(negative=())]


@app.command
def push(folder: Path, /) -> int:
    """Send the running server the keys that are revoked. Connections that use them end at once.

    For a folder with an operator, after the folder of a node was removed and `headrace cluster init` was run. The server remembers
    revoked keys.

    Examples:

        headrace cluster push cluster

    Parameters
    ----------
    folder
        The folder of the cluster.
    """
    anyio.run(tell_server, folder.absolute())
    Screen().out.print(f"{folder}: the server knows the revoked keys")
    return Exit.DONE


@app.command
def rekey(folder: Path, /, *, end_old: bool = False) -> int:
    """Replace the keys with which admission lets hosts join, or revoke the former keys.

    For a folder with an operator. Restart the servers afterwards, then admission: they read the keys when they start.
    Credentials that the former keys signed are valid until the former keys are revoked. A host that has joined gets a credential signed
    by the new keys automatically, after half of the lifetime of its credential. A host that has none when the former keys are revoked
    must join again with a token.

    Examples:

        headrace cluster rekey cluster

        headrace cluster rekey cluster --end-old

    Parameters
    ----------
    folder
        The folder of the cluster.
    end_old
        Revoke the former keys, and all credentials that they signed. Do this at once if the keys were stolen.
    """
    ClusterFolder(folder.absolute()).rekey(end_old=end_old)
    done = (
        "the former keys and their credentials are revoked"
        if end_old
        else "new keys are used, and the former keys stay valid"
    )
    Screen().out.print(f"{folder}: {done}, as soon as the servers and then admission are restarted")
    return Exit.DONE


@app.command
def init(
    folder: Path,
    /,
    *,
    url: str,
    listen: str = "0.0.0.0:4222",
    health: str = "",
    node: Nodes = None,
    beside: Nodes = None,
    administrators: str = "",
    operator: bool = False,
    tls: Path | None = None,
    servers: str = "nats",
) -> int:
    """Make credentials and settings of a server, the services, agents and people, each in its own folder.

    Existing files are kept, so the command can be run again, for example to add a node.
    A node or a person whose folder was removed is no longer admitted. The server reloads its configuration at a SIGHUP.

    Examples:

        headrace cluster init cluster --url nats://10.0.0.1:4222 --node host-17

        headrace cluster init cluster --url nats://a:4222,nats://b:4222,nats://c:4222 --servers a,b,c

    Parameters
    ----------
    folder
        Folder of the cluster; made if missing. People use `client` in it: `HEADRACE_STATE=cluster/client headrace node list`.
    url
        Address at which people and agents reach the server.
    listen
        Address and port at which the server listens.
    health
        Loopback address and port at which the server answers `/healthz` and all other monitoring of NATS. Default: none.
    node
        A host that may join, with the files in `client/nodes/NAME`; may be repeated.
    beside
        The same for an agent that runs beside the services, with its credential in `nodes/NAME`.
    administrators
        People who may do everything, besides the holder of `client/credential`, separated by commas; `*` means everybody. Unless
        given, it stays unchanged; a new cluster has no other administrator. Services read it when they start.
    operator
        From now on, the server accepts credentials signed by an operator, instead of passwords in its configuration. The keys are in
        `authority`; keep that folder off all hosts of the cluster. `headrace cluster push` sends the server revoked keys.
    tls
        Folder of `headrace tls init`, or other files with its names: the server uses TLS with `server.pem` and `server.key`, and clients
        trust only `ca.pem`. Copies of the files are stored in FOLDER.
    servers
        Hosts of a cluster of servers, separated by commas; each has its `nats.conf` in a folder of its name. A certificate names all.
    """
    parse_server_urls(url, place="--url")
    nodes, inside = ([node_name(name) for name in names or []] for names in (node, beside))
    cluster, hosts = ClusterFolder(folder.absolute()), [*map(node_name, servers.split(","))]
    options = ClusterOptions(url, listen, health, hosts, cluster.administrators(administrators))
    known = cluster.write(options, nodes, inside, has_operator=operator, tls=tls)
    screen = Screen()
    screen.out.print(f"{folder}: credentials of the services, of people, and of {counted(len(known), 'node')}", *known)
    say_administrators(screen, options, folder)
    return Exit.DONE


def say_administrators(screen: Screen, options: ClusterOptions, folder: Path) -> None:
    """Print who administers a cluster, as a warning if everybody does."""
    if options.everybody_administers:
        words = "everybody is an administrator here; `headrace cluster init … --administrators NAME` restricts that"
        screen.say(words, style="yellow", whole=True)
        return
    named = [name for name in options.administrator_names if name != ADMINISTRATOR]
    holder = [f"the holder of {folder / 'client'}"] if ADMINISTRATOR in options.administrator_names else []
    screen.say(f"administrators: {', '.join([*holder, *named])}", whole=True)
