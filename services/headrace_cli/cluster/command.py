"""The commands `headrace cluster …`: prepare what services need before they start."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import anyio
from cyclopts import App, Parameter

from headrace.access.routes import PartyKind
from headrace.client.places.endpoint import CREDENTIAL_FILE
from headrace.counted import counted
from headrace.ids import node_name
from headrace.systemd.unit_files import check_root
from headrace_cli.cluster import installation as installing
from headrace_cli.cluster.consumers import Consumer
from headrace_cli.cluster.folder import ADMINISTRATOR, ClusterFolder, ClusterOptions
from headrace_cli.cluster.push import tell_server
from headrace_cli.cluster.units import SERVICES_ACCOUNT
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Switch
from headrace_cli.show.screen import Screen

app = App(name="cluster", help="Make credentials and settings for services, and have systemd run the services.")

#: Folder of the systemd units.
_UNIT_FOLDER: Final = Path("/etc/systemd/system")

Nodes = Annotated[list[str] | None, Parameter(negative=())]


@app.command
def push(folder: Path, /) -> int:
    """Send the running server the keys that are revoked. Connections that use them end at once.

    Use it for a folder with an operator, after the folder of a node was removed and `headrace cluster init` was run. The server
    remembers revoked keys.

    Examples of use:

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

    The folder must have been made with `--operator`. Restart the servers afterwards, then admission: they read the keys when they start.
    Credentials that the former keys signed are valid until the former keys are revoked. A host that has joined gets a credential signed
    by the new keys automatically, after half of the lifetime of its credential. If you revoke the former keys earlier, the host must
    join again with a token.

    Examples of use:

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
    consumer: Annotated[list[Consumer] | None, Parameter(negative=())] = None,
) -> int:
    """Make credentials and settings of a server, the services, consumers, agents and people, each in its own folder.

    Existing files are kept, so it can be run again. After a SIGHUP, the server no longer admits nodes and people without a folder.

    Examples of use:

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
        People and groups (`group:NAME`) who may do everything, besides the holder of `client/credential`, separated by commas; `*` means
        everybody. Unless given, it stays unchanged; a new cluster has no other administrator. Services read it when they start.
    operator
        From now on, the server accepts credentials signed by an operator, instead of passwords in its configuration. The keys are in
        `authority`; keep that folder off all hosts of the cluster. `headrace cluster push` sends the server revoked keys.
    tls
        Folder of `headrace tls init`, or other files with its names: the server uses TLS with `server.pem` and `server.key`, and clients
        trust only `ca.pem`. Copies of the files are stored in FOLDER.
    servers
        Hosts of a cluster of servers, separated by commas; each has its `nats.conf` in a folder of its name. One certificate names all.
    consumer
        `notify` with `notify/rules.yaml`, `export` to `export/ended.jsonl`, or `web` with `web/server.pem` and `.key`; may be repeated.
    """
    nodes, inside = ([node_name(name) for name in names or []] for names in (node, beside))
    cluster, hosts = ClusterFolder(folder.absolute()), [*map(node_name, servers.split(","))]
    options = ClusterOptions(url, listen, health, hosts, cluster.administrators(administrators))
    following = [] if cluster.options() else _next_commands(folder, options, has_operator=operator)
    known = cluster.write(options, nodes, inside, consumers=consumer or (), has_operator=operator, tls=tls)
    _say_written(folder, options, known, following)
    return Exit.DONE


@app.command
def install(
    folder: Path,
    /,
    *,
    only: str = "",
    account: str = SERVICES_ACCOUNT,
    unit_folder: Path = _UNIT_FOLDER,
    dry_run: Switch = False,
) -> int:
    """Have systemd run the NATS server, the services and the consumers on this host, now and whenever the host starts.

    Their folders are given to the account, and no other account can read them.
    Running it again changes nothing. If existing units differ, the differences are printed, the units are replaced, and what they
    run is restarted.

    Examples of use:

        headrace cluster install /srv/headrace/cluster

        headrace cluster install /srv/headrace/cluster --only nats

        headrace cluster install /srv/headrace/cluster --only admission,fair_share,integral,allocator

    Parameters
    ----------
    folder
        The folder of the cluster, or the part of it that this host needs, at the path at which `headrace cluster init` made it.
    only
        What runs on this host, separated by commas, by the names of the folders. Default: all in FOLDER.
    account
        Account of what runs.
    unit_folder
        Folder of the units.
    dry_run
        Only print the units.
    """
    screen = Screen()
    if not dry_run:
        # Root is required before anything else, because other accounts cannot even see which services the folder has.
        check_root("install")
    installation = _installation(folder, only, account, unit_folder)
    if dry_run:
        for unit in installation.units():
            screen.print_raw(f"# {installation.unit_folder}/{unit.name}\n{unit.text}")
        return Exit.DONE
    for line in installing.install(installation):
        screen.print_raw(line)
    return Exit.DONE


@app.command
def uninstall(folder: Path, /, *, only: str = "", unit_folder: Path = _UNIT_FOLDER) -> int:
    """Stop the consumers, the services and the NATS server on this host, and remove their systemd units. The folder of the cluster stays.

    Jobs continue on their hosts until the lease of the nodes ends.

    Examples of use:

        headrace cluster uninstall /srv/headrace/cluster

    Parameters
    ----------
    folder
        The folder of the cluster.
    only
        The parts whose units are removed, separated by commas. Default: all in FOLDER.
    unit_folder
        Folder of the units.
    """
    check_root("remove")
    for line in installing.uninstall(_installation(folder, only, "", unit_folder)):
        Screen().print_raw(line)
    return Exit.DONE


def _installation(folder: Path, only: str, account: str, unit_folder: Path) -> installing.ClusterInstallation:
    names = [name for each in only.split(",") if (name := each.strip())]
    cluster = folder.absolute()
    processes = installing.chosen_processes(cluster, names)
    return installing.ClusterInstallation(cluster, processes, account, unit_folder.absolute())


def _say_written(folder: Path, options: ClusterOptions, known: Sequence[str], following: Iterable[str]) -> None:
    """Print which nodes are admitted and who administers the cluster, and then the lines `following`."""
    screen = Screen()
    screen.out.print(f"{folder}: credentials of the services, of people, and of {counted(len(known), 'node')}", *known)
    say_administrators(screen, options, folder)
    for line in following:
        screen.say(line, whole=True)


def _next_commands(folder: Path, options: ClusterOptions, *, has_operator: bool) -> Iterator[str]:
    """Yield the commands that start a new cluster and let the first host and the first person in."""
    path, client = folder.absolute(), shlex.quote(str(folder.absolute() / "client"))
    install, servers = f"  headrace cluster install {shlex.quote(str(path))}", options.servers
    yield "next, as root on the host of the server and the services, with the folder at the same path:"
    yield f"  useradd --system --no-create-home --shell /usr/sbin/nologin {SERVICES_ACCOUNT}"
    if len(servers) == 1:
        yield install
    else:
        yield from (f"{install} --only {server}    # on the host {server}" for server in servers)
        yield f"{install} --only {','.join(kind.value for kind in PartyKind if kind.is_service)}"
    yield "then here:"
    provisioner = shlex.quote(str(path / PartyKind.PROVISIONER.value / CREDENTIAL_FILE))
    replicas = f" --replicas {options.replicas}" if options.replicas > 1 else ""
    yield f"  headrace bus provision --state {client} --credential-file {provisioner}{replicas}"
    yield f"  headrace service list --state {client}"
    if has_operator:
        yield f"  headrace node token host-17 --state {client}    # for `headrace agent join --token -` on the host"
    else:
        yield f"  headrace cluster init {shlex.quote(str(folder))} --node host-17 …    # with all options as before"
    yield f"  headrace user add ada --cluster {shlex.quote(str(folder))}    # makes the folder of a person"
    yield f"  headrace login {shlex.quote(options.url)} --credential-file {CREDENTIAL_FILE}    # the person, in that folder"
    yield "or without this folder, all in containers, from a checkout of Headrace:"
    yield "  docker compose -f compose/compose.yaml up -d --build"


def say_administrators(screen: Screen, options: ClusterOptions, folder: Path) -> None:
    """Print who administers a cluster, as a warning if everybody does."""
    if options.everybody_administers:
        words = "everybody is an administrator here; `headrace cluster init … --administrators NAME` restricts that"
        screen.say(words, style="yellow", whole=True)
        return
    named = [name for name in options.administrator_names if name != ADMINISTRATOR]
    holder = [f"the holder of {folder / 'client'}"] if ADMINISTRATOR in options.administrator_names else []
    screen.say(f"administrators: {', '.join([*holder, *named])}", whole=True)
