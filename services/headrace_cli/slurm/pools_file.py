"""The file in which an administrator maps partitions, accounts and QOS to pools. A name that is not in it is the name of a pool. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.errors import BadInput
from headrace.suggestions import near
from headrace_cli.slurm.command_line import Given

_KINDS: Final = ("partition", "account", "qos")
#: QOS that Slurm gives to jobs that name none.
_USUAL_QOS: Final = "normal"


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pool, nodes, tree and weight for which a partition, an account or a QOS stands. An empty field chooses nothing."""

    pool: str = ""
    #: Tags of the nodes, such as `gpu & !old`.
    node_filter: str = ""
    tree: str = ""
    weight: Annotated[float, msgspec.Meta(gt=0)] | None = None
    #: True: a job that names no partition gets this partition.
    default: bool = False


class PoolsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file `pools.toml` beside the commands."""

    partition: dict[str, Place] = {}
    account: dict[str, Place] = {}
    qos: dict[str, Place] = {}

    @property
    def default_partition(self) -> str:
        return next((name for name, place in self.partition.items() if place.default), "")


class Chosen(msgspec.Struct, frozen=True):
    """The pool of a job, and the tree, the weight and the nodes that the file of pools chooses for the job."""

    pool: str = ""
    node_filters: list[str] = []
    tree: str = ""
    weight: float = 1.0
    #: Names of the partition, the account and the QOS, as Slurm's lists show them.
    partition: str = ""
    account: str = ""
    qos: str = ""
    remarks: list[str] = []


def parse_pools_file(text: bytes, name: str) -> PoolsFile:
    """Read a file of pools. Raises `BadInput`."""
    try:
        return msgspec.toml.decode(text, type=PoolsFile)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput.because(
            name,
            f'the file of pools cannot be read: {error}. Write tables such as [partition.gpu] with pool = "vision"',
        ) from None


def choose(given: Given, file: PoolsFile) -> Chosen:
    """Return where a job with these options runs. Raises `BadInput`."""
    names = {kind: given.one(kind) or "" for kind in _KINDS}
    if not names["partition"]:
        names["partition"] = file.default_partition
    pool = tree = ""
    weight, filters, remarks = 1.0, list[str](), list[str]()
    for kind in _KINDS:
        name, known = names[kind], getattr(file, kind)
        if not name:
            continue
        place = known.get(name)
        if place is None and kind == "partition" and known:
            hint = near(name, known)
            raise BadInput("--partition", name, f"did you mean {hint[0]}?" if hint else f"one of {', '.join(known)}")
        if place is None and kind == "partition" and names["account"]:
            remarks.append(f"--partition={name} is ignored: --account={names['account']} names the pool")
            continue
        if place is None and kind == "qos":
            remarks += [] if name == _USUAL_QOS else [f"--qos={name} is ignored: the file of pools does not name it"]
            continue
        place = place or Place(pool=name)
        pool, tree, weight = place.pool or pool, place.tree or tree, place.weight or weight
        filters += [place.node_filter] if place.node_filter else []
    return Chosen(pool, filters, tree, weight, names["partition"], names["account"], names["qos"], remarks)
