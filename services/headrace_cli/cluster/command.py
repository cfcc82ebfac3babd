"""The commands `headrace cluster …`: prepare what services need before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import App, Parameter

from headrace.ids import node_name
from headrace.server_urls import parse_server_urls
from headrace_cli.cluster.folder import ADMINISTRATOR, ClusterFolder, ClusterOptions
from headrace_cli.cluster.push import tell_server
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import Screen

app = App(
    name="cluster", help="Make credentials and settings of services that run on their own, in containers or on hosts."
)

Nodes = Annotated[list[str] | None, Parameter(negative=())]


@app.command
def push(folder: Path, /) -> int:
    """Tell the running server which keys count no more. Connections that use them end at once.

    For a folder with an operator, after the folder of a node was removed and `headrace cluster init` was run. The server remembers
    the keys that no longer count.

    Examples:

        headrace cluster push cluster

    Parameters
    ----------
    folder
        The folder of the cluster.
    """
    anyio.run(tell_server, folder.absolute())
    Screen().out.print(f"{folder}: the server knows which keys count")
    return Exit.DONE


@app.command
def rekey(folder: Path, /, *, end_old: bool = False) -> int:
    """Replace the keys by which admission lets hosts join, or end what the former ones signed.

    For a folder with an operator. Restart the servers afterwards, then admission: they read the keys when they start.
    What the former keys signed counts until they are ended. A host that has joined gets a credential signed by the new keys
    automatically, after half of the lifetime of its credential. A host without a new credential by the end must join again with a token.

    Examples:

        headrace cluster rekey cluster

        headrace cluster rekey cluster --end-old

    Parameters
    ----------
    folder
        The folder of the cluster.
    end_old
        End the keys that were replaced before, and all that they signed. Do this at once if the keys are in the wrong hands.
    """
    ClusterFolder(folder.absolute()).rekey(end_old=end_old)
    done = "what the former keys signed counts no more" if end_old else "new keys, beside the former ones"
    Screen().out.print(f"{folder}: {done}, once the servers and then admission were started anew")
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
        Made if it is missing. `client` in it is for people: `HEADRACE_STATE=cluster/client headrace node list`.
    url
        Where people and agents reach the server.
    listen
        Address and port at which the server listens.
    health
        Loopback address and port at which the server answers `/healthz`, and all else that NATS tells of itself. Else nowhere.
    node
        A host that may join, with the files in `client/nodes/NAME`; may be repeated.
    beside
        The same for an agent that runs beside the services, with its credential in `nodes/NAME`.
    administrators
        People who may do everything besides the holder of `client/credential`, with commas between them; `*` is everybody. Unless
        given, it stays as it was; a new cluster has no other administrator. Services read it when they start.
    operator
        Let the server believe an operator's word on each credential, in place of passwords in its configuration, from now on. The keys
        are in `authority`, which belongs on no host of the cluster. `headrace cluster push` tells of keys that count no more.
    tls
        Folder of `headrace tls init`, or other files of its names: the server speaks TLS by `server.pem` and `server.key`, and is
        believed by the word of `ca.pem` alone. Copies of the files are kept in FOLDER.
    servers
        The hosts of a cluster of servers, with commas: each has its `nats.conf` in a folder of its name. A certificate names them all.
    """
    parse_server_urls(url, place="--url")
    nodes, inside = ([node_name(name) for name in names or []] for names in (node, beside))
    cluster, hosts = ClusterFolder(folder.absolute()), [*map(node_name, servers.split(","))]
    options = ClusterOptions(url, listen, health, hosts, cluster.administrators(administrators))
    known = cluster.write(options, nodes, inside, has_operator=operator, tls=tls)
    screen = Screen()
    screen.out.print(f"{folder}: credentials of the services, of people, and of {len(known)} nodes", *known)
    say_administrators(screen, options, folder)
    return Exit.DONE


def say_administrators(screen: Screen, options: ClusterOptions, folder: Path) -> None:
    """Print who administers a cluster, as a warning if everybody does."""
    if options.everybody_administers:
        words = "everybody may do everything here; `headrace cluster init … --administrators NAME` names those who may"
        screen.say(words, style="yellow", whole=True)
        return
    named = [name for name in options.administrator_names if name != ADMINISTRATOR]
    holder = [f"the holder of {folder / 'client'}"] if ADMINISTRATOR in options.administrator_names else []
    screen.say(f"administrators: {', '.join([*holder, *named])}", whole=True)
