"""A pool tree's configuration and the rules that every change of it keeps; pure.

A `PoolTree` is an immutable index over `wire.pools.Tree`. Each change is decided against it and gives either the new tree as a whole
or a refusal that names the place, what stands there and what would do.

Invariants (`problems` lists what breaks them): names are unique in the tree, parents stand before their children, depth and subtree
sizes are bounded, children's guarantees add up to no more than their parent's (not checked below the root), and no pool below one
with an integral guarantee has flow or burst figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace import pools
from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName, pool_name
from headrace.near import near
from headrace.pools import NOTHING, IntegralType, Pool, PoolSettings, Tree
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, format_amount
from headrace.wire.pools import CreatePool, RemovePool
from headrace.wire.refusals import BadRequest, Exists, NotFound, Refusal, WrongState

__all__ = ["LARGEST_SUBTREE", "MOST_LEVELS", "Change", "PoolTree"]

#: Levels of pools below the root.
MOST_LEVELS: Final = 30
#: Pools in the subtree of a pool, itself included.
LARGEST_SUBTREE: Final = 1_000
_MOST_NAMED: Final = 3


class Change(msgspec.Struct, frozen=True):
    """A tree that keeps all the rules, ready to be written."""

    tree: Tree
    name: PoolName


class PoolTree(pools.PoolTree):
    """One tree's pools, indexed, with the decisions on changes of them."""

    def created(self, request: CreatePool, ephemeral: frozenset[PoolName] = frozenset()) -> Change | Refusal:
        """The tree with one pool more. `ephemeral` are pools that live only by their operations: no parents for others."""
        try:
            name = pool_name(request.name)
        except BadInput as error:
            return BadRequest("name", str(error.value), error.expected)
        if name in self.pools:
            return Exists(what="pool", name=name, where=self.path(name))
        parent = request.parent
        if parent in ephemeral and parent not in self.pools:
            return WrongState("pool", parent, "ephemeral", "a configured pool as the parent; create it first")
        if parent != ROOT_POOL and parent not in self.pools:
            return self.not_found(parent)
        pool = Pool(name=name, parent=parent, settings=request.settings)
        return self._checked(self._with([*self.tree.pools, pool]), name)

    def changed(self, name: PoolName, settings: PoolSettings) -> Change | Refusal:
        """The tree with other settings of one pool."""
        refusal = self._no_such_pool(name)
        if refusal is not None:
            return refusal
        after = [
            Pool(name=pool.name, parent=pool.parent, settings=settings) if pool.name == name else pool
            for pool in self.tree.pools
        ]
        return self._checked(self._with(after), name)

    def removed(self, request: RemovePool, operations: int) -> Change | Refusal:
        """The tree without a pool that has neither children nor `operations`."""
        refusal = self._no_such_pool(request.name)
        if refusal is not None:
            return refusal
        children = self.children[request.name]
        if children:
            return WrongState("pool", request.name, f"the parent of {_some(children)}", "a pool without child pools")
        if operations:
            plural = "operation" if operations == 1 else "operations"
            return WrongState("pool", request.name, f"in use by {operations} {plural}", "a pool without operations")
        after = [pool for pool in self.tree.pools if pool.name != request.name]
        return Change(tree=self._with(after), name=request.name)

    def _with(self, after: list[Pool]) -> Tree:
        return msgspec.structs.replace(self.tree, pools=after, format=pools.model.TREE_FORMAT)

    def not_found(self, name: str) -> NotFound:
        """There is no such pool, but perhaps one of a similar name."""
        return NotFound(what="pool", name=name, near=near(name, self.pools))

    def overcommitted(self, total: Resources) -> list[str]:
        """What the pools under the root are guaranteed beyond `total`, resource by resource, in words with both figures."""
        if total == ZERO:
            return []
        promised = Resources.sum(
            self.pools[name].settings.strong_guarantee_resources.whole for name in self.children[ROOT_POOL]
        )
        return [
            f"strong guarantees of the top pools promise {format_amount(resource, figure)} of {resource}; "
            f"the cluster has {format_amount(resource, there)}"
            for resource, figure, there in zip(RESOURCE_NAMES, promised.as_tuple(), total.as_tuple(), strict=True)
            if figure > there > 0
        ]

    def problems(self) -> list[Refusal]:
        """Every rule that the tree as a whole breaks."""
        if len(self.pools) != len(self.tree.pools):
            twice = [pool.name for pool in self.tree.pools]
            return [Exists(what="pool", name=name) for name in self.pools if twice.count(name) > 1]
        found = [refusal for refusal in map(self._misplaced, range(len(self.tree.pools))) if refusal is not None]
        if found:
            return found
        for name in (ROOT_POOL, *self.pools):
            found.extend(self._broken_at(name))
        return found

    def _misplaced(self, at: int) -> Refusal | None:
        pool = self.tree.pools[at]
        try:
            pool_name(pool.name)
        except BadInput as error:
            return BadRequest(f"pools[{at}].name", str(error.value), error.expected)
        before = {other.name for other in self.tree.pools[:at]} if at < LARGEST_SUBTREE else self.pools.keys()
        if pool.parent != ROOT_POOL and pool.parent not in before:
            return self.not_found(pool.parent)
        return None

    def _no_such_pool(self, name: str) -> Refusal | None:
        if name == ROOT_POOL:
            return WrongState("pool", name, "the root", "a configured pool; the root has no settings")
        return None if name in self.pools else self.not_found(name)

    def _checked(self, tree: Tree, name: PoolName) -> Change | Refusal:
        """Checks the pool that is touched, its parent and everything above it."""
        after = PoolTree(tree)
        if len(list(after.upwards(name))) - 1 > MOST_LEVELS:
            return BadRequest("parent", self.path(after.pools[name].parent), f"at most {MOST_LEVELS} levels of pools")
        for each in after.upwards(name):
            broken = next(after._broken_at(each), None)
            if broken is not None:
                return broken
        return Change(tree=tree, name=name)

    def _broken_at(self, name: PoolName) -> Iterator[Refusal]:
        if name == ROOT_POOL:
            return
        if self.subtree_size(name) > LARGEST_SUBTREE:
            yield BadRequest("parent", self.path(name), f"at most {LARGEST_SUBTREE} pools in a subtree")
        if len(list(self.upwards(name))) - 1 > MOST_LEVELS:
            yield BadRequest("parent", self.path(name), f"at most {MOST_LEVELS} levels of pools")
        yield from self._sums(name)
        yield from self._integral(name)

    def _sums(self, name: PoolName) -> Iterator[Refusal]:
        children = self.children[name]
        if not children:
            return
        own = _guarantees(self.pools[name].settings)
        theirs = [_guarantees(self.pools[child].settings) for child in children]
        for key, limit in own.items():
            together = Resources.sum(each[key] for each in theirs)
            for resource, figure, most in zip(RESOURCE_NAMES, together.as_tuple(), limit.as_tuple(), strict=True):
                if figure > most:
                    yield BadRequest(
                        place=f"{key}.{resource}",
                        value=f"{format_amount(resource, figure)} in sum over the children of {self.path(name)}",
                        expected=f"at most the {format_amount(resource, most)} of {name} itself",
                    )

    def _integral(self, name: PoolName) -> Iterator[Refusal]:
        own = self.pools[name].settings.integral_guarantees
        if own.guarantee_type is IntegralType.RELAXED and own.burst_guarantee_resources != NOTHING:
            yield BadRequest(
                "integral_guarantees.burst_guarantee_resources", f"a figure on relaxed pool {name}", "none there"
            )
        if own.resource_flow == NOTHING and own.burst_guarantee_resources == NOTHING:
            return
        for above in list(self.upwards(name))[1:-1]:
            kind = self.pools[above].settings.integral_guarantees.guarantee_type
            if kind is not IntegralType.NONE:
                yield BadRequest(
                    "integral_guarantees", f"flow or burst of {name}", f"none below {self.path(above)}, which is {kind}"
                )


def _guarantees(settings: PoolSettings) -> dict[str, Resources]:
    integral = settings.integral_guarantees
    return {
        "strong_guarantee_resources": settings.strong_guarantee_resources.whole,
        "integral_guarantees.resource_flow": integral.resource_flow.whole,
        "integral_guarantees.burst_guarantee_resources": integral.burst_guarantee_resources.whole,
    }


def _some(names: list[PoolName]) -> str:
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
