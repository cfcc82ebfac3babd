"""Changes of a tree, applied one after the other, and the problems with them. Pure.

If a change cannot be made, a `Draft` still applies the following changes, so that all problems are reported at once. The resulting tree is
used only if there was no problem and no rule is broken: either all changes are made or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

import msgspec

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import (
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    Access,
    Changed,
    Defects,
    Person,
    Pool,
    PoolConfig,
    PoolMode,
    PoolTree,
    Schema,
    Tree,
    TreeOptions,
    Who,
)
from headrace.pools.attributes.kinds import refuse_too_deep
from headrace.pools.stored_tree import TREE_FORMAT
from headrace.suggestions import near, some
from headrace.wire.codec import UNREADABLE
from headrace.wire.pool_changes import Create, Move, PoolChange, Remove, Set, SetOptions, Transfer
from headrace.wire.refusals import BadRequest, Exists, NotFound, Refusal, WrongState
from headrace_fair_share.configuration.rights import RightsInTree
from headrace_fair_share.configuration.rules import TreeBounds, broken_options, broken_rules
from headrace_fair_share.configuration.transfer import transferred

_LONGEST_NAME: Final = 100
#: Largest size in bytes of the settings of one pool, as JSON.
_LARGEST_POOL_BYTES: Final = 64 * 1024
#: Largest size in bytes of the options of one tree, as JSON.
_LARGEST_OPTIONS_BYTES: Final = 192 * 1024
#: Largest number of keys of one request that name a part of a map, such as `labels/team`. Each of them copies the map, which takes up to
#: 0.4 ms. Parts of resources and of other small maps are not counted.
_MOST_PARTS: Final = 1_000
_HUB_SIGN: Final = "$"
#: After this many problems, the report of an unknown pool suggests no similar names, because finding similar names takes some 20 ms in a
#: tree of 5,000 pools.
_MOST_SUGGESTIONS: Final = 10
#: Options of a tree on which rules about its pools depend.
_CONCERN_POOLS: Final = (
    "main_resource",
    "pool_config_presets",
    "enable_pool_starvation",
    "scheduling_preemption_priority_scope",
)


class Draft:
    """A tree that is being changed."""

    def __init__(
        self, before: PoolTree, bounds: TreeBounds, person: Person, in_use: Mapping[PoolName, int] | None = None
    ) -> None:
        """Create a draft of changes to `before`. `in_use` counts the operations in each pool."""
        self.before = before
        self._bounds = bounds
        self._rights = RightsInTree(person, self._access)
        self._in_use = in_use or {}
        self._pools: dict[PoolName, Pool] = dict(before.pools)
        self._options = before.options
        self._index: PoolTree | None = before
        self._touched: dict[PoolName, None] = {}
        #: Attributes that the changes set, each with the name of the pool. Options of the tree have an empty pool name.
        self._named: set[tuple[PoolName, str]] = set()
        self.problems: list[Refusal] = []
        self._repeated = 0
        #: Number of keys so far that name a part of a map.
        self._parts = 0
        self.warnings: list[str] = []
        #: Keys that the changes name and that are neither attributes nor options.
        self.unknown: set[str] = set()

    # --- changes and results ----------------------------------------------------------------------------------------

    def make(self, change: PoolChange) -> None:
        """Apply one change. Problems with it are added to `problems`."""
        match change:
            case Create():
                self._create(change)
            case Set():
                self._set(change)
            case Remove():
                self._remove(change)
            case Move():
                self._move(change)
            case Transfer():
                self._transfer(change)
            case SetOptions():
                self._set_options(change)
            case _:
                assert_never(change)

    def check(self) -> None:
        """Check the rules that concern the tree as a whole, once after the last change. Violations are added to `problems`."""
        tree = self.tree
        names: list[PoolName] | None = list(self._touched)
        if tree.options != self.before.options:
            self.problems.extend(broken_options(tree.options))
            if any(getattr(tree.options, name) != getattr(self.before.options, name) for name in _CONCERN_POOLS):
                names = None
        self.problems.extend(broken_rules(tree, self._bounds, names))
        for name in self._touched:
            self._check_use(name)

    @property
    def problem_count(self) -> int:
        """Number of problems. A problem that several changes have is listed once, but counts once for each of them."""
        return len(self.problems) + self._repeated

    @property
    def tree(self) -> PoolTree:
        """The resulting tree."""
        if self._index is None:
            pools = _parents_first(self._pools)
            tree = Tree(tree=self.before.name, pools=pools, options=self._options, format=TREE_FORMAT)
            self._index = PoolTree(tree)
        return self._index

    @property
    def touched(self) -> list[PoolName]:
        """Pools that were created or changed, in the order of the changes."""
        return [name for name in self._touched if name in self._pools]

    def names(self, pool: PoolName, attribute: str) -> bool:
        """Return True if a change names this attribute of the pool, or this option of the tree if the pool name is empty."""
        return (pool, attribute) in self._named

    # --- one change each --------------------------------------------------------------------------------------------

    def _create(self, change: Create) -> None:
        parent = change.parent
        if parent != ROOT_POOL and parent not in self._pools:
            self._no_parent(parent)
            return
        self._need(self._rights.to_make_pools_in(parent))
        if not self._is_free_name(change.name, parent):
            return
        settings = self._with_attributes(PoolConfig(), change.attributes, parent, change.name)
        self._put(Pool(change.name, parent, settings))

    def _set(self, change: Set) -> None:
        pool = self._pool(change.name)
        if pool is None:
            return
        self._need(self._rights.to_change(pool.name))
        settings = self._with_attributes(pool.settings, change.attributes, pool.name, pool.name)
        self._put(msgspec.structs.replace(pool, settings=settings))

    def _remove(self, change: Remove) -> None:
        pool = self._pool(change.name)
        if pool is None:
            return
        self._need(self._rights.to_remove(pool.name))
        below = self._subtree(pool.name)
        if len(below) > 1 and not change.recursive:
            state = f"the parent of {some(each for each in below if self._pools[each].parent == pool.name)}"
            self.problems.append(
                WrongState(
                    "pool",
                    pool.name,
                    state,
                    "a pool without child pools, or --recursive to remove the pools below it too",
                )
            )
            return
        for name in below:
            count = self._in_use.get(name, 0)
            if count and not change.in_use:
                state = f"in use by {count} {'operation' if count == 1 else 'operations'}"
                self.problems.append(
                    WrongState(
                        "pool",
                        name,
                        state,
                        "a pool without operations, or --in-use to remove it although operations use it",
                    )
                )
        for name in below:
            self._drop(name)
            self._warn_of_use(name)

    def _move(self, change: Move) -> None:
        pool = self._pool(change.name)
        if pool is None:
            return
        parent = change.parent or pool.parent
        new_name = change.new_name or pool.name
        self._need(self._rights.to_move(pool.name))
        if parent != ROOT_POOL and parent not in self._pools:
            self._no_parent(parent)
            return
        self._need(self._rights.to_make_pools_in(parent))
        if pool.name in self._upwards(parent):
            value = f"{self.tree.path(parent)}, {'the pool itself' if parent == pool.name else 'a pool below it'},"
            self.problems.append(BadRequest("parent", value, f"a pool that is not below {pool.name}", rule="cycle"))
            return
        if new_name != pool.name and not self._is_free_name(new_name, parent):
            return
        self._pools = {
            (new_name if name == pool.name else name): msgspec.structs.replace(each, parent=new_name)
            if each.parent == pool.name
            else each
            for name, each in self._pools.items()
        }
        self._put(Pool(new_name, parent, pool.settings))
        if new_name != pool.name:
            self._warn_of_use(pool.name)

    def _transfer(self, change: Transfer) -> None:
        for name in (change.source, change.destination):
            if name != ROOT_POOL and name not in self._pools:
                self.problems.append(self._not_found(name))
                return
        try:
            changed = transferred(self.tree, change.source, change.destination, _read_object(change.delta, "delta"))
        except Defects as defects:
            self.problems.extend(map(BadRequest.of, defects.problems))
            return
        for pool in changed:
            self._need(self._rights.to_change(pool.name))
            self._put(pool)

    def _set_options(self, change: SetOptions) -> None:
        self._need(self._rights.to_change_options(self.before.name))
        try:
            plain = self._read_attributes(change.options, "options", TREE_ATTRIBUTES)
            changed = TREE_ATTRIBUTES.changed(self._options, _without_pool_attributes(plain), "options")
        except Defects as defects:
            self.problems.extend(map(BadRequest.of, defects.problems))
            return
        options: TreeOptions = changed.value
        self._check_size("options", options, _LARGEST_OPTIONS_BYTES)
        self._options, self._index = options, None
        self._named.update((PoolName(""), attribute) for attribute in changed.touched)
        self.unknown.update(changed.unknown)
        self.warnings.extend(_kept_unknown(TREE_ATTRIBUTES, f"tree {self.before.name}", changed))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _with_attributes(self, before: PoolConfig, written: bytes, rights_at: PoolName, name: PoolName) -> PoolConfig:
        """Return the settings with all usable changes applied. Attributes that the person may not set are added to the problems."""
        place = f"pools.{name}"
        try:
            plain = self._read_attributes(written, place, POOL_ATTRIBUTES)
        except Defects as defects:
            self.problems.extend(map(BadRequest.of, defects.problems))
            return before
        # Usable attributes are applied even if others are unusable, so that all broken rules are found at once.
        changed, problems = POOL_ATTRIBUTES.usable(before, plain, place)
        self.problems.extend(map(BadRequest.of, problems))
        if not self._rights.administers(rights_at):
            for key in changed.unknown:
                value = changed.value.unrecognized.get(key)
                problem = POOL_ATTRIBUTES.refuse_unknown(key, value, f"{place}.{key}")
                self.problems.append(BadRequest.of(problem, rule="permission"))
            for attribute in POOL_ATTRIBUTES.attributes.values():
                if attribute.name in changed.touched and attribute.who is Who.ADMINISTRATOR:
                    self.problems.append(self._rights.to_set(attribute.name, name))
        self.unknown.update(changed.unknown)
        self.warnings.extend(_kept_unknown(POOL_ATTRIBUTES, f"pool {name}", changed))
        self._named.update((name, attribute) for attribute in changed.touched)
        settings: PoolConfig = changed.value
        self._check_size(place, settings, _LARGEST_POOL_BYTES)
        return settings

    def _read_attributes(self, written: bytes, place: str, schema: Schema) -> dict[str, Any]:
        """Return a map of attributes. Raises `Defects`, also if too many keys of the request name parts of maps."""
        plain = _read_object(written, place)
        self._parts += sum(map(schema.is_in_large_map, plain))
        if self._parts > _MOST_PARTS:
            many = f"more than {_MOST_PARTS} keys of one request name a part of a map, such as `labels/team`"
            raise Defects([BadInput.because(place, f"{many}. Give whole maps instead")])
        return plain

    def _check_size(self, place: str, value: msgspec.Struct, most_bytes: int) -> None:
        """Refuse settings that are too large. Lists are sent in pages, so each single pool, and the options of the tree, must fit on one
        page.
        """
        size_bytes = len(msgspec.json.encode(value))
        if size_bytes > most_bytes:
            self.problems.append(
                BadRequest.because(place, f"the settings have {size_bytes} bytes; at most {most_bytes} are allowed")
            )

    def _is_free_name(self, name: PoolName, parent: PoolName) -> bool:
        problem = self._problem_of_name(name, self._rights.administers(parent))
        if problem is None and name in self._pools:
            problem = Exists(what="pool", name=name, where=self.tree.path(name))
        if problem is not None:
            self.problems.append(problem)
        return problem is None

    def _problem_of_name(self, name: str, administers: bool) -> Refusal | None:
        if name == ROOT_POOL:
            return BadRequest("name", name, "a name other than that of the root", rule="reserved_name")
        if len(name) > _LONGEST_NAME:
            expected = f"1 to {_LONGEST_NAME} characters"
            return BadRequest("name", f"{name[:20]}... ({len(name)} characters)", expected, rule="name_too_long")
        bounds = self._bounds
        pattern = bounds.pool_name_pattern_for_administrators if administers else bounds.pool_name_pattern_for_users
        patterns = [bounds.pool_name_pattern_for_users, pattern]
        if not any(re.fullmatch(each, name) for each in patterns) or _HUB_SIGN in name:
            return BadRequest("name", name, f"1 to {_LONGEST_NAME} characters that match {pattern}", rule="name_regex")
        return None

    def _warn_of_use(self, name: PoolName) -> None:
        count = self._in_use.get(name, 0)
        if count:
            operations = "1 operation goes on" if count == 1 else f"{count} operations go on"
            self.warnings.append(
                f"{operations} in an ephemeral pool {name}, since operations keep the name of their pool"
            )

    def _check_use(self, name: PoolName) -> None:
        """Refuse to make a pool a fifo pool while it contains ephemeral pools."""
        settings, old = self.tree.settings(name), self.before.settings(name)
        if settings.mode is not PoolMode.FIFO or old.mode is PoolMode.FIFO or name not in self.before.pools:
            return
        ephemeral = [each for each in self._in_use if each not in self._pools and self.before.hub_of(each) == name]
        if ephemeral:
            state = f"the parent of ephemeral {some(ephemeral)}"
            self.problems.append(
                WrongState(
                    "pool",
                    name,
                    state,
                    "a pool without child pools; wait until the operations in its ephemeral pools end",
                )
            )

    def _pool(self, name: PoolName) -> Pool | None:
        pool = self._pools.get(name)
        if name == ROOT_POOL:
            expected = "a configured pool; set options of the whole tree with `headrace tree set`"
            self.problems.append(WrongState("pool", name, "the root", expected))
        elif pool is None:
            self.problems.append(self._not_found(name))
        return pool

    def _no_parent(self, parent: PoolName) -> None:
        if self._in_use.get(parent):
            expected = "a configured pool as the parent; create it first with `headrace pool create`"
            self.problems.append(WrongState("pool", parent, "ephemeral", expected))
        else:
            self.problems.append(self._not_found(parent))

    def _not_found(self, name: str) -> NotFound:
        known = self._pools if len(self.problems) < _MOST_SUGGESTIONS else ()
        return NotFound(what="pool", name=name, near=near(name, known))

    def _need(self, refusal: Refusal | None) -> None:
        if refusal in self.problems:
            self._repeated += 1
        elif refusal is not None:
            self.problems.append(refusal)

    # The methods below do not use `tree`: its index would be built again after each change, from every pool and its settings.

    def _access(self, pool: PoolName) -> Iterator[Access]:
        """Yield the access lists of a pool, of all pools above it and of the tree."""
        for name in self._upwards(pool):
            yield self._pools[name].settings.access
        yield self._options.access

    def _upwards(self, pool: PoolName) -> Iterator[PoolName]:
        """Yield a pool and all pools above it, without the root."""
        while pool in self._pools:
            yield pool
            pool = self._pools[pool].parent

    def _subtree(self, top: PoolName) -> list[PoolName]:
        """Return a pool and all pools below it, parents first."""
        children: dict[PoolName, list[PoolName]] = {}
        for pool in self._pools.values():
            children.setdefault(pool.parent, []).append(pool.name)
        found = [top]
        for name in found:
            found.extend(children.get(name, ()))
        return found

    def _put(self, pool: Pool) -> None:
        self._pools[pool.name] = pool
        self._touched[pool.name] = None
        self._index = None

    def _drop(self, name: PoolName) -> None:
        del self._pools[name]
        self._index = None


def _parents_first(pools: Mapping[PoolName, Pool]) -> list[Pool]:
    """Return the pools in the given order, except that a pool that stands before its parent is moved behind it."""
    placed: dict[PoolName, Pool] = {}
    for pool in pools.values():
        if pool.parent in placed or pool.parent == ROOT_POOL:
            placed[pool.name] = pool
            continue
        chain = []
        while pool.name not in placed:
            chain.append(pool)
            if pool.parent == ROOT_POOL:
                break
            pool = pools[pool.parent]
        placed.update((each.name, each) for each in reversed(chain))
    return list(placed.values())


def _read_object(written: bytes, place: str) -> dict[str, Any]:
    """Return a JSON object as a dictionary. Raises `Defects`."""
    try:
        plain = msgspec.json.decode(written)
    except UNREADABLE as error:
        raise Defects([BadInput(place, written.decode("utf-8", "replace"), f"a JSON object ({error})")]) from None
    if not isinstance(plain, dict):
        raise Defects(
            [BadInput(place, str(plain)[:100] if not isinstance(plain, list) else "a list", "a map of attributes")]
        )
    try:
        refuse_too_deep(plain, place)
    except BadInput as problem:
        raise Defects([problem]) from None
    return plain


def _without_pool_attributes(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options unchanged. Raises `Defects` if one of them is an attribute of pools and so was probably meant for a pool."""
    wrong = [
        BadInput(f"options.{key}", value, f"an option of a tree; {key} is an attribute of pools")
        for key, value in plain.items()
        if key in POOL_ATTRIBUTES.names and key not in TREE_ATTRIBUTES.names
    ]
    if wrong:
        raise Defects(wrong)
    return plain


def _kept_unknown(schema: Schema, what: str, changed: Changed) -> list[str]:
    """Return warnings about keys that were kept although they are unknown."""
    warnings = []
    for key in changed.unknown:
        if key not in changed.value.unrecognized:
            continue
        found = schema.similar(key)
        question = f" Did you mean {' or '.join(found)}?" if found else ""
        warnings.append(f"{key} on {what} is not known here; it is kept and has no effect.{question}")
    return warnings
