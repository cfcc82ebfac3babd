"""The commands `headrace node …`: list nodes, let hosts join, drain nodes and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Unpack

from cyclopts import App, Parameter

from headrace.access.key_credential import KeyCredential
from headrace.client import Client, Unanswered
from headrace.client.client import DrainWishes
from headrace.client.place import find_place
from headrace.counted import counted
from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.ids import NodeName, node_name, tree_name
from headrace.resources import parse_amount
from headrace.runtime.clock import SystemClock
from headrace.wire.joining import MakeToken
from headrace.wire.nodes import NodeChange, NodeTerms
from headrace.wire.refusals import Refused
from headrace_cli.commands.node_tables import node_facts, node_jobs, node_table
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common, InTree, Watching, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.times import parse_timestamp_ms, timestamp

app = App(name="node", help="List nodes, let hosts join, drain nodes, and remove them.")

#: Number of slots that a node may offer if its token names other amounts but no slots. No agent offers more slots than this.
_MOST_SLOTS: Final = "1000"
_NOT_ENCRYPTED: Final = "the connection of this host will not be encrypted, and the host cannot verify the server"


@Parameter(name="*")
@dataclass(frozen=True)
class OfferLimits:
    """Options for the amounts that a node may offer."""

    cpu: str = ""
    """Largest number of cores that the node may offer."""
    memory: str = ""
    """Largest amount of memory that the node may offer."""
    gpu: str = ""
    """Largest number of GPUs that the node may offer."""
    slots: str = ""
    """Largest number of slots that the node may offer. A job usually takes one slot."""
    network: str = ""
    """Largest number of network units that the node may offer."""

    def terms(self, tags: list[str]) -> NodeTerms:
        """Return the terms of a token. If any amount is named, GPU and network are 0 unless they are named too."""
        gpu, slots, network = self.gpu, self.slots, self.network
        if any((self.cpu, self.memory, gpu, slots, network)):
            gpu, slots, network = gpu or "0", slots or _MOST_SLOTS, network or "0"
        return NodeTerms(
            tags=sorted({*tags}),
            cpu=parse_amount("cpu", self.cpu, place="--cpu") if self.cpu else None,
            memory=parse_amount("memory", self.memory, place="--memory") if self.memory else None,
            user_slots=parse_amount("user_slots", slots, place="--slots") if slots else None,
            gpu=parse_amount("gpu", gpu, place="--gpu") if gpu else None,
            network=parse_amount("network", network, place="--network") if network else None,
        )


@app.command(name="list")
def list_(*, watching: Watching | None = None, common: InTree | None = None) -> int:
    """List nodes, with their resources and how much of each is in use.

    Examples of use:

        headrace node list

        headrace node list --json

        headrace node list --tree gpu
    """

    async def work(client: Client, screen: Screen) -> None:
        answer = await client.nodes()
        screen.show(answer, node_table(answer.nodes))
        if answer.recovering and not screen.json:
            screen.say(f"recovering: {answer.recovering} nodes have reported since the allocator started")

    return talk(common, work, watching=watching)


@app.command
def get(node: str, /, *, common: InTree | None = None) -> int:
    """Show one node: its resources and usage, what its agent claims beyond its token, and the jobs that run on it.

    Examples of use:

        headrace node get host-17

    Parameters
    ----------
    node
        The node.
    """
    name = node_name(node)

    async def work(client: Client, screen: Screen) -> None:
        view = await client.hosts.get(name, client.place.tree)
        screen.show(view, node_facts(view))
        if view.jobs and not screen.json:
            screen.print("", node_jobs(view.jobs))

    return talk(common, work)


@app.command
def token(
    node: str,
    /,
    *,
    tree: str = "default",
    tag: Annotated[list[str] | None, Parameter(negative=())] = None,
    most: OfferLimits | None = None,
    url: str = "",
    common: Common | None = None,
) -> int:
    """Print a token with which one host can join as this node, within ten minutes. For administrators.

    Anyone who has the token can join as the node, so treat it like a password.

    A token without amounts lets the node offer all resources of its host. Name amounts for a host that you do not trust. If any amount
    is named, the node offers no GPU and no network unless the token names them, and at most 1000 slots.

    Examples of use:

        headrace node token host-17 > token

        headrace node token host-17 --tag gpu --cpu 8 --memory 64GiB --gpu 2

    Parameters
    ----------
    node
        The name of the node. If a node of that name exists, its key changes and its previous agent is shut out.
    tree
        Tree of the node.
    tag
        A tag of the node; may be repeated. All other tags that its agent reports are ignored.
    url
        Address at which the host reaches the server. Default: the address that this command uses.
    """
    from headrace_cli.agent.pinning import sha256_of  # cryptography takes longer to import than `node list` takes
    from headrace_cli.agent.token import JoinToken, new_user_key

    name = node_name(node)
    terms = (most or OfferLimits()).terms(tag or [])
    place = find_place(state=(common or Common()).state)
    authority = sha256_of(Path(place.ca_file).read_text(encoding="ascii")) if place.ca_file else ""
    key = new_user_key()

    async def work(client: Client, screen: Screen) -> None:
        made = await client.hosts.make_token(MakeToken(name, key.public, tree_name(tree), terms))
        if not (url or place.url).startswith("tls://"):
            screen.say(_NOT_ENCRYPTED, style="yellow")
        text = JoinToken(name, url or place.url, authority, KeyCredential(jwt=made.jwt, seed=key.seed)).text()
        if screen.json:
            screen.print_line({"node": name, "token": text, "expires_at_ms": made.expires_at_ms})
        else:
            screen.print_raw(text)

    return talk(common, work, bears_restarts=True)


@app.command(usage="Usage: headrace node drain [OPTIONS] NODES...")
def drain(
    *nodes: str,
    reason: str = "",
    at: str = "",
    until: str = "",
    abort_after: str = "",
    common: Common | None = None,
) -> int:
    """Drain nodes: no new jobs start on them. Running jobs continue to their end. For administrators.

    A node stays drained until `headrace node undrain`, or until the time of `--until`. Draining a node again replaces these times.

    Examples of use:

        headrace node drain host-17 --reason "new kernel"

        headrace node drain host-17 host-18 --at 18:00 --until 2h --abort-after 10m

        headrace node drain host-17 --at 2026-12-01T06:00 --until 2026-12-01T08:00

    Parameters
    ----------
    nodes
        The nodes.
    reason
        The reason, shown to everybody who sees the node.
    at
        When the drain begins: a time such as 18:00 or 2026-12-01T18:00, or a duration from now, such as 2h. At once unless given.
    until
        When jobs may start again: a time, or a duration after the drain begins, such as 2h. Unless given, the node stays drained until
        it is undrained.
    abort_after
        How long after the drain begins the jobs that still run are interrupted and requeued, such as 10m; 0: at once. Unless given,
        they run to their end.
    """
    if not nodes:
        raise BadInput.because("node drain", "no node is named. Name at least one, such as host-17")
    now_ms = SystemClock().wall_ms()
    from_ms = parse_timestamp_ms(at, place="--at", now_ms=now_ms, is_future=True) if at else 0
    begin_ms = max(now_ms, from_ms)
    wishes = DrainWishes(
        reason=reason,
        from_ms=from_ms,
        until_ms=parse_timestamp_ms(until, place="--until", now_ms=begin_ms, is_future=True) if until else 0,
        abort_after_ms=parse_duration_ms(abort_after, place="--abort-after") if abort_after else None,
    )
    return _change(nodes, NodeChange.DRAIN, "no new jobs start on it", common, **wishes)


@app.command(usage="Usage: headrace node undrain [OPTIONS] NODES...")
def undrain(*nodes: str, common: Common | None = None) -> int:
    """Let jobs start on drained nodes again, or take back a drain that has not begun. For administrators.

    Examples of use:

        headrace node undrain host-17 host-18

    Parameters
    ----------
    nodes
        The nodes.
    """
    if not nodes:
        raise BadInput.because("node undrain", "no node is named. Name at least one, such as host-17")
    return _change(nodes, NodeChange.UNDRAIN, "jobs may start on it again", common)


@app.command
def shut_out(node: str, /, *, common: Common | None = None) -> int:
    """Cut off at once a host that may be compromised. For administrators.

    For a node that joined with a token. Its key is revoked: its connection ends, and the host can join again only with a new token.
    The node's jobs keep running until its lease ends, and are then retried elsewhere. `headrace node remove` retries them at once.

    Examples of use:

        headrace node shut-out host-17

    Parameters
    ----------
    node
        The node.
    """
    return _change([node], NodeChange.SHUT_OUT, "it is cut off, and can join again only with a new token", common)


@app.command
def remove(node: str, /, *, common: Common | None = None) -> int:
    """Remove a node that is gone for good. For administrators.

    The node must have been silent for a minute, or be drained with no jobs on it.

    The jobs of a silent node count as lost and are retried elsewhere at once. Make sure that its host is off: on a host that is only
    cut off, the jobs keep running until the node's lease ends.

    If the node joined with a token, its key is revoked: its connection ends, and the host can join again only with a new token.
    Any other node enrols itself again if its agent runs.

    Examples of use:

        headrace node remove host-17

    Parameters
    ----------
    node
        The node.
    """
    return _change([node], NodeChange.REMOVE, "it is no longer enrolled", common)


def _change(
    nodes: Sequence[str], change: NodeChange, what: str, common: Common | None, **drain: Unpack[DrainWishes]
) -> int:
    """Change each of the nodes and return the exit status. Raises `BadInput` for an invalid name before any node is changed.

    With several nodes, a refused change is reported, and the remaining nodes are still changed.
    """
    names = [node_name(node) for node in nodes]

    async def work(client: Client, screen: Screen) -> int:
        status = Exit.DONE
        for name in names:
            try:
                done = await client.change_node(name, change, **drain)
            except Refused as error:
                if len(names) == 1:
                    raise
                screen.say(f"node {name}: {error}", style="red")
                status = Exit.REFUSED
                continue
            begins = done.drain is not None and done.drain.from_ms
            later = f"from {timestamp(begins / 1000)} on {what}" if begins else what
            jobs = await _jobs_words(client, name) if change is NodeChange.DRAIN and not screen.json else ""
            screen.show_line(done, f"node {done.node}: {later}{jobs}")
        return status

    return talk(common, work, bears_restarts=True)


async def _jobs_words(client: Client, node: NodeName) -> str:
    """Return how many jobs run on a node; empty if none does, or if the allocator of the client's tree does not know."""
    try:
        running = (await client.hosts.get(node, client.place.tree)).running_jobs
    except (Refused, Unanswered):
        return ""
    return f"; {counted(running, 'running job')}: headrace node get {node}" if running else ""
