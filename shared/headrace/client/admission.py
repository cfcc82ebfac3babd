"""Requests to admission about persons, hosts, files and dry runs of starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.client.asking import Asker
from headrace.client.operation_id import new_operation_id
from headrace.client.pools import Pools
from headrace.ids import OperationId, PoolName, TreeName, node_name, operation_id
from headrace.runtime.clock import Clock
from headrace.wire import subjects
from headrace.wire.files import Archive, Upload, Uploaded
from headrace.wire.groups import ChangeGroup, GetGroup, Group, GroupChange, GroupList, ListGroups
from headrace.wire.joining import MakeToken, TokenMade
from headrace.wire.nodes import ListNodes, NodeList, NodeView
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.rights import GetRights, Rights
from headrace.wire.start_plans import FitOperation, OperationFit, PlannedPlace, PlanStart, StartPlanned
from headrace.wire.what_if import SupposedOperation, WhatIfAnswer

if TYPE_CHECKING:
    from headrace.archives import Packed  # Loading `headrace.archives` takes longer than most commands run.

#: Seconds for which one piece of an archive is sent again if it is not acknowledged.
_PIECE_S: Final = 30.0


class Files:
    """Requests to send the files of operations."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def send(self, packed: Packed, on_sent: Callable[[int], None] = lambda _: None) -> Archive:
        """Send the pieces that admission does not have yet. `on_sent` is called with the number of bytes that admission has.

        Raises `Refused`, `Unanswered`.
        """
        archive = packed.archive
        uploaded = await self._asker.ask("op.upload", Upload(archive), Uploaded)
        while uploaded.missing:
            piece = uploaded.missing[0]
            on_sent(archive.size_bytes - sum(map(archive.piece_bytes, uploaded.missing)))
            request = Upload(archive, piece, packed.piece(piece))
            uploaded = await self._asker.ask("op.upload", request, Uploaded, timeout_s=_PIECE_S)
        on_sent(archive.size_bytes)
        return archive


class Groups:
    """Groups of people. Only administrators may change them. A change is in force when the method that makes it returns."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def list(self) -> GroupList:
        """Return all groups, by name. Raises `Unanswered`."""
        return await self._asker.ask("group.list", ListGroups(), GroupList)

    async def get(self, name: str) -> Group:
        """Return a group with its members. Raises `Refused`, with similar names, and `Unanswered`."""
        return await self._asker.ask("group.get", GetGroup(name), Group)

    async def create(self, name: str, members: Iterable[str] = ()) -> Group:
        """Make a group. Raises `Refused`, `Unanswered`."""
        return await self._change(name, GroupChange.CREATE, members)

    async def add(self, name: str, members: Iterable[str]) -> Group:
        """Add people to a group. People who are members already stay members. Raises `Refused`, `Unanswered`."""
        return await self._change(name, GroupChange.ADD, members)

    async def remove(self, name: str, members: Iterable[str]) -> Group:
        """Remove people from a group. Raises `Refused`, and removes none of them, if one of them is not a member. Also raises
        `Unanswered`.
        """
        return await self._change(name, GroupChange.REMOVE, members)

    async def delete(self, name: str) -> Group:
        """Delete a group, and return it as it was. Access lists that name the group are not changed. Raises `Refused`, `Unanswered`."""
        return await self._change(name, GroupChange.DELETE)

    async def _change(self, name: str, change: GroupChange, members: Iterable[str] = ()) -> Group:
        request = ChangeGroup(name, change, [*members])
        return await self._asker.ask("group.change", request, Group, repeatable=change is GroupChange.ADD)


class Persons:
    """Requests of a person about the person's own rights."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def rights(self) -> Rights:
        """Return the caller's name, groups and rights. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask("rights", GetRights(), Rights)

    async def rights_on(self, pool: PoolName, tree: TreeName) -> Rights:
        """Return the caller's rights on one pool, and for each right that the caller lacks the people and groups that have it.

        Raises `Refused`, `Unanswered`.
        """
        return await self._asker.ask("rights", GetRights(pool, tree), Rights)


class Hosts:
    """Requests about single hosts, which are or become nodes."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def make_token(self, request: MakeToken) -> TokenMade:
        """Allow the holder of a key to join one host within the next minutes. For administrators. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask("node.token", request, TokenMade)

    async def get(self, node: str, tree: TreeName) -> NodeView:
        """Return a node of a tree with the jobs that run on it. Raises `Refused`, with similar names, if the tree has no such node."""
        request = ListNodes(operations_of=node_name(node))
        [view] = (await self._asker.ask(subjects.of_tree("node.list", tree), request, NodeList)).nodes
        return view

    async def page(self, tree: TreeName, request: ListNodes) -> NodeList:
        """Return a page of the nodes of a tree, by name. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask(subjects.of_tree("node.list", tree), request, NodeList)


class DryRuns:
    """Dry runs of starts. They record nothing."""

    def __init__(self, asker: Asker, clock: Clock, pools: Pools) -> None:
        self._asker = asker
        self._clock = clock
        self._pools = pools

    async def plan(self, spec: OperationSpec, *, operation: str = "") -> StartPlanned:
        """Make all the checks of a start. Raises what `Client.start` raises."""
        name = operation_id(operation) if operation else new_operation_id(self._clock)
        request = PlanStart(OperationId(name), spec, self._pools.revision)
        return await self._asker.ask("op.plan_start", request, StartPlanned)

    async def fit(self, spec: OperationSpec, tree: TreeName, pool: PoolName) -> OperationFit:
        """Ask the allocator of a tree what keeps the operation's jobs from starting now. Raises `Refused`, `Unanswered`."""
        verb = subjects.of_tree("op.fit", tree)
        return await self._asker.ask(verb, FitOperation(_bare(spec, tree, pool)), OperationFit)

    async def shares(self, spec: OperationSpec, place: PlannedPlace, *, never_runs: bool = False) -> WhatIfAnswer:
        """Return the shares of a tree before and after the start. With `never_runs` the operation has no demand.

        Raises `Refused`, `Unanswered`.
        """
        bare = _bare(spec, place.tree, place.pool)
        supposed = SupposedOperation(bare, place.made, waits=never_runs or place.waiting is not None)
        return await self._pools.of(place.tree).what_if(operations=[supposed])


def _bare(spec: OperationSpec, tree: TreeName, pool: PoolName) -> OperationSpec:
    """Return the spec in one tree, without the fields that only the jobs need: arguments, environment, lines,
    working directory and files.
    """
    here = spec.in_tree(tree, pool)
    tasks = [msgspec.structs.replace(task, argv=task.argv[:1], environment={}) for task in here.tasks]
    bare = msgspec.structs.replace(here, argv=here.argv[:1], environment={}, lines=[], working_directory="", files=None)
    return msgspec.structs.replace(bare, tasks=tasks)
