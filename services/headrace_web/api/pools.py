"""Endpoints for pools and pool trees."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from headrace.client.pools import Pools
from headrace.client.share_words import bound_words, more_words
from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName, pool_name, pool_or_path
from headrace.resources import parse_resources
from headrace.wire.history import MOST_POINTS, PoolHistory, UnixMs
from headrace.wire.lost_work import LostWorkTold
from headrace.wire.pool_changes import Create, Move, PoolChange, PoolPlan, Remove, Set, SetOptions, Transfer
from headrace.wire.pool_explanations import PoolExplained
from headrace.wire.pools import MOST_POOLS_OF_PAGE, GetPools, PoolList, PoolView
from headrace.wire.preemption import ObservedPreemptions
from headrace.wire.snapshots import ShareFrame, ShareItem
from headrace.wire.trees import MovePoolToTree, TreeView
from headrace.wire.what_if import SupposedNodes, WhatIfAnswer
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint
from headrace_web.api.pages import Limit, cursor_of, page_of, read_cursor

#: Tree of a request; empty: the tree that this service was started for.
Tree = str
#: Attributes or options as a person writes them, such as `{"weight": 2}`. Null resets an attribute to its default.
Attributes = dict[str, Any]


class OnePool(msgspec.Struct, frozen=True):
    """A pool."""

    #: Name of the pool; `<Root>` is the whole tree.
    pool: str
    tree: Tree = ""


class ListedPools(msgspec.Struct, frozen=True):
    """Which pools to list."""

    tree: Tree = ""
    #: Only the child pools of this pool, which is given by its name or its path; empty: all pools. The children of `<Root>` are the top
    #: pools.
    parent: str = ""
    #: Only pools whose name begins with this text.
    name_prefix: Annotated[str, msgspec.Meta(max_length=200)] = ""
    #: True: only pools that starve.
    starving: bool = False
    #: Largest number of pools on the page. A page has fewer if their data would be too large.
    limit: Limit = 1000
    #: `next` of the page before; empty for the first page.
    cursor: str = ""


class PoolPage(msgspec.Struct, frozen=True):
    """A page of pools: the root first, parents before children, siblings in their order."""

    pools: list[PoolView]
    #: Facts about the update of the shares.
    frame: ShareFrame
    #: `cursor` of the next page; null on the last page.
    next: str | None


class PoolAlone(msgspec.Struct, frozen=True):
    """One pool."""

    pool: PoolView
    #: Operations directly in the pool, with their shares.
    operations: list[ShareItem]
    #: Number of operations that did not fit into the answer.
    operations_left_out: int
    frame: ShareFrame


class ExplainedPool(msgspec.Struct, frozen=True):
    """A pool to explain."""

    pool: str
    #: Pool to compare with; empty: none.
    against: str = ""
    tree: Tree = ""


class StepWords(msgspec.Struct, frozen=True):
    """A level of an explanation in words."""

    #: What bounded the fair share of the level.
    bound: str
    #: What would give the level a larger fair share; empty: nothing would, or the demand of the level is met.
    more: str


class PoolExplainedInWords(PoolExplained, frozen=True):
    """Why a pool gets what it gets, in numbers and in words."""

    #: The levels of `steps` in words.
    words: list[StepWords]


class PoolPeriod(msgspec.Struct, frozen=True):
    """A period of a pool."""

    pool: str
    #: Unix time in milliseconds of the beginning.
    since_ms: UnixMs
    #: Unix time in milliseconds of the end, which is excluded.
    until_ms: UnixMs
    tree: Tree = ""


class HistoryOfPool(PoolPeriod, frozen=True):
    """A period of a pool, with the resource and the number of points to return."""

    #: `user_slots`, `cpu`, `gpu`, `memory` or `network`.
    resource: str = "cpu"
    #: Largest number of points.
    points: Annotated[int, msgspec.Meta(ge=1, le=MOST_POINTS)] = 500
    #: True: if records begin later than `since_ms`, begin with the oldest record.
    from_oldest: bool = False


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a tree. Which fields count depends on `change`."""

    #: `create`, `set`, `remove`, `move`, `transfer` or `set_options`.
    change: Literal["create", "set", "remove", "move", "transfer", "set_options"]
    #: Pool that is made, changed, removed or moved; for `transfer` the pool that gives.
    pool: str = ""
    #: For `create` and `move`: the parent. For `transfer`: the pool that receives.
    to: str = ""
    #: For `move`: new name of the pool; empty: the name stays.
    new_name: str = ""
    #: For `create`, `set` and `set_options`: attributes or options. For `transfer`: the amounts.
    attributes: Attributes = {}
    #: For `remove`: True removes all pools below as well.
    recursive: bool = False
    #: For `remove`: True removes the pool even if it has operations.
    in_use: bool = False


class Changes(msgspec.Struct, frozen=True):
    """Changes of a tree, of which either all are made or none."""

    changes: Annotated[list[Change], msgspec.Meta(min_length=1, max_length=1000)]
    tree: Tree = ""
    #: True: only return the outcome.
    dry_run: bool = False
    #: Revision of the tree that the changes are based on; the changes are refused if the tree has another revision. 0: any revision.
    expected_revision: Annotated[int, msgspec.Meta(ge=0)] = 0


class NodesSupposed(msgspec.Struct, frozen=True):
    """Nodes that are supposed to be added, or to be removed if `count` is negative."""

    count: int
    #: Resources of each node, such as `{"cpu": 16, "memory": "64G"}`.
    resources: dict[str, str | int | float]
    tags: list[str] = []


class Supposed(msgspec.Struct, frozen=True):
    """A what-if question: the changes and the nodes that are supposed."""

    tree: Tree = ""
    changes: Annotated[list[Change], msgspec.Meta(max_length=1000)] = []
    nodes: Annotated[list[NodesSupposed], msgspec.Meta(max_length=100)] = []


class MovedPool(msgspec.Struct, frozen=True):
    """A move of a pool, with all pools below it, to another tree."""

    pool: str
    to_tree: str
    #: Parent in the other tree.
    parent: str = ROOT_POOL
    #: Name in the other tree; empty: the name stays.
    new_name: str = ""
    tree: Tree = ""
    #: True: move the pool even if it has operations.
    in_use: bool = False
    dry_run: bool = False


class ListedNames(msgspec.Struct, frozen=True):
    """Which trees or groups to list."""

    #: Only trees or groups whose name begins with this text.
    name_prefix: str = ""
    limit: Limit = 1000
    #: `next` of the page before; empty for the first page.
    cursor: str = ""


class TreePage(msgspec.Struct, frozen=True):
    """A page of trees, by name."""

    trees: list[TreeView]
    #: `cursor` of the next page; null on the last page.
    next: str | None


class OneTree(msgspec.Struct, frozen=True):
    """A tree."""

    tree: str


class TreeOptionsRequest(msgspec.Struct, frozen=True):
    """Options of a tree."""

    tree: str
    #: Options to set.
    options: Attributes = {}
    dry_run: bool = False


class RemovedTree(msgspec.Struct, frozen=True):
    """A tree to remove."""

    tree: str
    #: True: remove all its pools, too.
    recursive: bool = False
    dry_run: bool = False


async def list_pools(context: Context, request: ListedPools) -> PoolPage:
    """List pools with their figures and shares."""
    pools, (first, after) = await _pools(context, request.tree), read_cursor(request.cursor)
    page = await pools.page(
        GetPools(
            first=first,
            after=after,
            limit=min(request.limit, MOST_POOLS_OF_PAGE),
            parent=await pools.at(request.parent) if request.parent else "",
            name_prefix=request.name_prefix,
            starving=request.starving,
        )
    )
    goes_on = page.more and bool(page.pools)
    return PoolPage(page.pools, page.frame, cursor_of(page.next_first, page.pools[-1].name) if goes_on else None)


async def get_pool(context: Context, request: OnePool) -> PoolAlone:
    """Return a pool with its operations."""
    found: PoolList = await (await _pools(context, request.tree)).list(request.pool, operations=True)
    return PoolAlone(found.pools[0], found.operations, found.operations_left_out, found.frame)


async def explain_pool(context: Context, request: ExplainedPool) -> PoolExplainedInWords:
    """Explain why a pool gets what it gets, level by level, and which elements hold the resources that it lacks."""
    told = await (await _pools(context, request.tree)).explain(request.pool, request.against)
    words = [StepWords(bound_words(step), more_words(step)) for step in told.steps]
    return PoolExplainedInWords(**msgspec.structs.asdict(told), words=words)


async def get_pool_history(context: Context, request: HistoryOfPool) -> PoolHistory:
    """Return one resource of a pool over time."""
    return await (await _pools(context, request.tree)).history(
        request.pool,
        since_ms=request.since_ms,
        until_ms=request.until_ms,
        resource=request.resource,
        points=request.points,
        from_oldest=request.from_oldest,
    )


async def get_lost_work(context: Context, request: PoolPeriod) -> LostWorkTold:
    """Return the work that a pool and all pools below it lost to preemption, by hour and reason."""
    return await (await _pools(context, request.tree)).lost_work(
        request.pool, since_ms=request.since_ms, until_ms=request.until_ms
    )


async def get_preemptions(context: Context, request: OnePool) -> ObservedPreemptions:
    """Return counts of the preemptions below a pool. If the tree only observes preemption, the answer has the observed preemptions, too."""
    return await (await _pools(context, request.tree)).preemptions(request.pool)


async def change_pools(context: Context, request: Changes) -> PoolPlan:
    """Make all of the changes, or none if one is refused. With `dry_run` only return the resulting plan, with all broken rules."""
    return await (await _pools(context, request.tree)).change(
        [_change(each, f"changes[{place}]") for place, each in enumerate(request.changes)],
        dry_run=request.dry_run,
        expected_revision=request.expected_revision,
    )


async def what_if(context: Context, request: Supposed) -> WhatIfAnswer:
    """Return the shares of all elements now, and after changes and with nodes that are only supposed. Nothing is changed."""
    return await (await _pools(context, request.tree)).what_if(
        [_change(each, f"changes[{place}]") for place, each in enumerate(request.changes)],
        nodes=[
            SupposedNodes(each.count, parse_resources(each.resources, place=f"nodes[{place}].resources"), each.tags)
            for place, each in enumerate(request.nodes)
        ],
    )


async def move_pool_to_tree(context: Context, request: MovedPool) -> PoolPlan:
    """Make a pool, with all pools below it, in another tree, and remove it here."""
    tree = await context.tree(request.tree)
    return await context.client.pools.of(tree).move_to_tree(
        MovePoolToTree(
            name=pool_or_path(request.pool),
            to_tree=await context.tree(request.to_tree),
            parent=pool_or_path(request.parent),
            new_name=PoolName(request.new_name),
            tree=tree,
            in_use=request.in_use,
            dry_run=request.dry_run,
        )
    )


async def list_trees(context: Context, request: ListedNames) -> TreePage:
    """List the pool trees by name."""
    trees = (each for each in (await context.client.trees.list()).trees if each.tree.startswith(request.name_prefix))
    return TreePage(*page_of(trees, lambda each: each.tree, limit=request.limit, cursor=request.cursor))


async def get_tree(context: Context, request: OneTree) -> TreeView:
    """Return a tree with its options."""
    return (await context.client.trees.list(request.tree)).trees[0]


async def create_tree(context: Context, request: TreeOptionsRequest) -> PoolPlan:
    """Make a tree without pools."""
    return await context.client.trees.create(request.tree, request.options, dry_run=request.dry_run)


async def set_tree_options(context: Context, request: TreeOptionsRequest) -> PoolPlan:
    """Change options of a tree. Null resets an option to its default."""
    return await context.client.trees.set(request.tree, request.options, dry_run=request.dry_run)


async def remove_tree(context: Context, request: RemovedTree) -> PoolPlan:
    """Remove a tree that no process serves any more."""
    return await context.client.trees.remove(request.tree, recursive=request.recursive, dry_run=request.dry_run)


async def _pools(context: Context, tree: str) -> Pools:
    return context.client.pools.of(await context.tree(tree))


def _change(change: Change, place: str) -> PoolChange:
    """Return the change as fair_share takes it. Raises `BadInput`."""
    needed = {"create": "pool", "set": "pool", "remove": "pool", "move": "pool", "transfer": "to"}.get(change.change)
    if needed and not getattr(change, needed):
        raise BadInput.because(f"{place}.{needed}", f"a change `{change.change}` needs the name of a pool here")
    written = msgspec.json.encode(change.attributes)
    match change.change:
        case "create":
            return Create(pool_name(change.pool), pool_or_path(change.to or ROOT_POOL), written)
        case "set":
            return Set(pool_or_path(change.pool), written)
        case "remove":
            return Remove(pool_or_path(change.pool), change.recursive, change.in_use)
        case "move":
            parent = pool_or_path(change.to) if change.to else PoolName("")
            return Move(pool_or_path(change.pool), parent, PoolName(change.new_name))
        case "transfer":
            return Transfer(pool_or_path(change.pool), pool_or_path(change.to), written)
        case "set_options":
            return SetOptions(written)


ENDPOINTS: Final = (
    Endpoint("GET", "/pools", list_pools),
    Endpoint("POST", "/pools/changes", change_pools),
    Endpoint("POST", "/pools/what-if", what_if),
    Endpoint("GET", "/pools/{pool}", get_pool),
    Endpoint("GET", "/pools/{pool}/explanation", explain_pool),
    Endpoint("GET", "/pools/{pool}/history", get_pool_history),
    Endpoint("GET", "/pools/{pool}/lost-work", get_lost_work),
    Endpoint("GET", "/pools/{pool}/preemptions", get_preemptions),
    Endpoint("POST", "/pools/{pool}/move-to-tree", move_pool_to_tree),
    Endpoint("GET", "/trees", list_trees),
    Endpoint("GET", "/trees/{tree}", get_tree),
    Endpoint("POST", "/trees/{tree}", create_tree, status=201),
    Endpoint("PATCH", "/trees/{tree}", set_tree_options),
    Endpoint("DELETE", "/trees/{tree}", remove_tree),
)
