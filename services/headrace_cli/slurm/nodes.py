"""Partitions and nodes as `sinfo` and `scontrol` print them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace.wire.nodes import NodeView
from headrace_cli.slurm.pools_file import Place, PoolsFile

_MIB: Final = 2**20


class Partition(NamedTuple):
    """A partition that the file of pools names, or a tree if the file names no partition."""

    name: str
    is_default: bool
    nodes: Sequence[NodeView]


class Group(NamedTuple):
    """Nodes of a partition that are in the same state."""

    partition: Partition
    state: str
    nodes: Sequence[NodeView]

    @property
    def total(self) -> Resources:
        return Resources.sum(node.total for node in self.nodes)

    @property
    def usage(self) -> Resources:
        return Resources.sum(node.usage for node in self.nodes)


def partitions_of(file: PoolsFile, nodes: Mapping[str, Sequence[NodeView]], own_tree: str) -> list[Partition]:
    """Return the partitions. `nodes` has the nodes of each tree."""
    if not file.partition:
        return [Partition(tree, tree == own_tree, found) for tree, found in nodes.items()]
    return [
        Partition(name, place.default, [node for node in nodes.get(place.tree or own_tree, ()) if _is_in(node, place)])
        for name, place in file.partition.items()
    ]


def _is_in(node: NodeView, place: Place) -> bool:
    return matches(place.node_filter, [*node.tags, node.node])


#: Long and short names of the states of nodes.
SHORT_NODE_STATES: Final[Mapping[str, str]] = {
    "idle": "idle",
    "mixed": "mix",
    "allocated": "alloc",
    "draining": "drng",
    "drained": "drain",
    "down*": "down*",
}


def node_state(node: NodeView) -> str:
    """Return the state of a node in Slurm's words."""
    if node.state in ("offline", "unheard"):
        return "down*"
    if node.state == "draining":
        return "draining" if node.running_jobs else "drained"
    if not node.running_jobs:
        return "idle"
    return "allocated" if node.usage.cpu >= node.total.cpu else "mixed"


def groups_of(partitions: Iterable[Partition], *, each_node: bool, states: Sequence[str] = ()) -> list[Group]:
    """Return one group for each state of a partition's nodes, or for each node. With `states`, only nodes in these states are returned.

    `states` has long or short names of states.
    """
    found = []
    for partition in partitions:
        by_state: dict[tuple[str, str], list[NodeView]] = {}
        for node in partition.nodes:
            state = node_state(node)
            if not states or not {state, state.rstrip("*"), SHORT_NODE_STATES[state]}.isdisjoint(states):
                by_state.setdefault((state, node.node if each_node else ""), []).append(node)
        found += [Group(partition, state, nodes) for (state, _), nodes in by_state.items()]
        if not by_state and not states and not each_node:
            found.append(Group(partition, "n/a", ()))
    return found


def _least(group: Group, value: Callable[[NodeView], int]) -> str:
    """Return the value that all nodes have. If their values differ, return the smallest value and a plus sign."""
    values = [value(node) for node in group.nodes] or [0]
    return f"{min(values)}{'+' if min(values) < max(values) else ''}"


def _cores(group: Group) -> str:
    """Return cores as allocated/idle/other/total."""
    total, used = group.total.cpu // 100, -(-group.usage.cpu // 100)
    other = 0 if group.state in ("idle", "mixed", "allocated") else total - used
    return f"{used}/{total - used - other}/{other}/{total}"


def _gpus(group: Group) -> str:
    count = max((node.total.gpu for node in group.nodes), default=0)
    return f"gpu:{count}" if count else "(null)"


def _tags(group: Group) -> str:
    return ",".join(dict.fromkeys(tag for node in group.nodes for tag in node.tags)) or "(null)"


#: Letters of `sinfo --format`.
SINFO_LETTERS: Final[Mapping[str, tuple[str, Callable[[Group], str]]]] = {
    "P": ("PARTITION", lambda group: group.partition.name + ("*" if group.partition.is_default else "")),
    "R": ("PARTITION", lambda group: group.partition.name),
    "a": ("AVAIL", lambda _: "up"),
    "l": ("TIMELIMIT", lambda _: "infinite"),
    "D": ("NODES", lambda group: str(len(group.nodes))),
    "t": ("STATE", lambda group: SHORT_NODE_STATES.get(group.state, group.state)),
    "T": ("STATE", lambda group: group.state),
    "N": ("NODELIST", lambda group: ",".join(node.node for node in group.nodes)),
    "n": ("HOSTNAMES", lambda group: ",".join(node.node for node in group.nodes)),
    "c": ("CPUS", lambda group: _least(group, lambda node: node.total.cpu // 100)),
    "m": ("MEMORY", lambda group: _least(group, lambda node: node.total.memory // _MIB)),
    "C": ("CPUS(A/I/O/T)", _cores),
    "G": ("GRES", _gpus),
    "f": ("AVAIL_FEATURES", _tags),
    "b": ("ACTIVE_FEATURES", _tags),
}
USUAL_SINFO: Final = "%9P %.5a %.10l %.6D %.6t %N"
NODES_SINFO: Final = "%15N %.6D %9P %.6t"
LONG_SINFO: Final = "%15N %.6D %9P %.11T %.4c %.8m %f"


def partition_text(partition: Partition, *, one_line: bool) -> str:
    """Return the text of `scontrol show partition`."""
    total = Resources.sum(node.total for node in partition.nodes)
    lines = [
        f"PartitionName={partition.name}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"Default={'YES' if partition.is_default else 'NO'} DefaultTime=NONE MaxTime=UNLIMITED MaxNodes=1",
        f"Nodes={','.join(node.node for node in partition.nodes)}",
        f"State=UP TotalCPUs={total.cpu // 100} TotalNodes={len(partition.nodes)}",
        f"TRES=cpu={total.cpu // 100},mem={total.memory // _MIB}M,node={len(partition.nodes)}"
        + (f",gres/gpu={total.gpu}" if total.gpu else ""),
    ]
    return (" " if one_line else "\n   ").join(lines)


def node_text(node: NodeView, *, one_line: bool) -> str:
    """Return the text of `scontrol show node`."""
    total, usage = node.total, node.usage
    lines = [
        f"NodeName={node.node} CPUAlloc={-(-usage.cpu // 100)} CPUTot={total.cpu // 100}",
        f"AvailableFeatures={','.join(node.tags) or '(null)'} Gres={f'gpu:{total.gpu}' if total.gpu else '(null)'}",
        f"RealMemory={total.memory // _MIB} AllocMem={usage.memory // _MIB}",
        f"State={node_state(node).upper()}" + (f" Reason={node.drain.reason}" if node.drain else ""),
    ]
    return (" " if one_line else "\n   ").join(lines)
