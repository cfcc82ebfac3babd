"""Admission written down once more, as plainly as it can be: lists, and everything counted by looking at everybody.

It knows nothing of events, tickets or restarts; that the engine agrees with it after each step is what the property tests ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

ROOT = "<Root>"


@dataclass
class ModelPool:
    """A pool, configured or ephemeral."""

    parent: str = ROOT
    max_total: int | None = None
    max_running: int | None = None
    fifo: bool = False
    light: bool = False
    hub: bool = False
    subpool: tuple[int | None, int | None] | None = None
    #: For ephemeral pools: whose cap it counts for, and whether a hub made it.
    user: str = ""
    of_hub: bool = False


@dataclass
class ModelOperation:
    name: str
    user: str
    vanilla: bool
    pool: str
    #: Where it waits; None: it holds a slot.
    waits_at: str | None = None
    #: Number of its last coming into a queue or out of it.
    number: int = 0


@dataclass
class Model:
    """One tree."""

    configured: dict[str, ModelPool] = field(default_factory=dict)
    max_total: int = 50_000
    max_running: int = 2_000
    pool_total: int = 50
    pool_running: int = 50
    default_parent: str = ROOT
    per_user: int = 1
    only_on_scan: bool = False
    #: The placement rules are `nested_user specified` and `user`, and not those that every tree begins with.
    nested: bool = False
    ephemeral: dict[str, ModelPool] = field(default_factory=dict)
    operations: dict[str, ModelOperation] = field(default_factory=dict)
    queues: dict[str, list[ModelOperation]] = field(default_factory=dict)
    numbers: int = 0

    # --- counting ---------------------------------------------------------------------------------------------------

    def exists(self, pool: str) -> bool:
        return pool == ROOT or pool in self.configured or pool in self.ephemeral

    def pool(self, name: str) -> ModelPool:
        return self.configured.get(name) or self.ephemeral.get(name) or ModelPool()

    def chain(self, pool: str) -> list[str]:
        found = []
        while pool != ROOT:
            found.append(pool)
            pool = self.pool(pool).parent
        return [*found, ROOT]

    def is_light(self, operation: ModelOperation, pool: str | None = None) -> bool:
        place = self.configured.get(pool or operation.pool, ModelPool())
        return operation.vanilla and place.fifo and place.light

    def counts(self, pool: str) -> tuple[int, int, int]:
        inside = [each for each in self.operations.values() if pool in self.chain(each.pool)]
        slots = [each for each in inside if each.waits_at is None]
        light = sum(self.is_light(each) for each in slots)
        return len(inside), len(slots) - light, light

    def limits(self, pool: str) -> tuple[int, int]:
        if pool == ROOT:
            return self.max_total, self.max_running
        return self.limits_of(self.pool(pool))

    def limits_of(self, own: ModelPool) -> tuple[int, int]:
        total = self.pool_total if own.max_total is None else own.max_total
        return total, self.pool_running if own.max_running is None else own.max_running

    def free(self, pool: str) -> int:
        return max(0, self.limits(pool)[1] - self.counts(pool)[1])

    def blocking(self, operation: ModelOperation, pool: str) -> str | None:
        if self.is_light(operation, pool):
            return None
        return next((each for each in self.chain(pool) if not self.free(each)), None)

    # --- queues -----------------------------------------------------------------------------------------------------

    def put(self, operation: ModelOperation, waits_at: str | None) -> None:
        """Out of its queue, and into another or into a slot."""
        self.numbers += 1
        operation.number = self.numbers
        if operation.waits_at is not None:
            self.queues[operation.waits_at].remove(operation)
        operation.waits_at = waits_at
        if waits_at is not None:
            self.queues.setdefault(waits_at, []).append(operation)

    def offer(self, chain: list[str]) -> None:
        for pool in chain:
            queue = self.queues.get(pool, [])
            while queue and self.free(pool):
                self.put(queue[0], self.blocking(queue[0], queue[0].pool))
        self.sweep()

    def judge(self, operations: list[ModelOperation]) -> None:
        for operation in sorted(operations, key=lambda each: each.number):
            blocking = self.blocking(operation, operation.pool)
            if blocking != operation.waits_at:
                self.put(operation, blocking)
        self.sweep()

    def waiting(self) -> Iterator[ModelOperation]:
        return (each for each in self.operations.values() if each.waits_at is not None)

    def scan(self) -> None:
        self.judge([each for each in self.waiting() if each.waits_at != ROOT])
        if not self.only_on_scan:
            self.settle()

    def settle(self) -> None:
        strayed = {each.waits_at for each in self.waiting() if each.waits_at not in self.chain(each.pool)}
        self.judge([each for each in self.waiting() if each.waits_at in strayed])
        queues = [pool for pool, queue in self.queues.items() if queue]
        for pool in sorted(queues, key=lambda pool: (-len(self.chain(pool)), self.queues[pool][0].number)):
            self.offer([pool])

    # --- what happens -----------------------------------------------------------------------------------------------

    def target(self, asked: str, user: str) -> tuple[str, ModelPool | None]:
        """The pool, and what would be made for it."""
        if not self.exists(asked):
            return asked, self.laid_on(ModelPool(self.default_parent_of(asked), user=user))
        if not self.configured.get(asked, ModelPool()).hub:
            return asked, None
        name = f"{asked}${user}"
        return name, None if self.exists(name) else self.laid_on(ModelPool(asked, of_hub=True))

    def target_of_start(self, asked: str, user: str) -> tuple[str, dict[str, ModelPool]]:
        """The pool by the placement rules, and what would be made for it, parents first."""
        if not self.nested or not asked or (asked in self.configured and not self.configured[asked].hub):
            pool, made = self.target(user if self.nested else asked or user, user)
            return pool, {} if made is None else {pool: made}
        own = f"{asked}${user}"
        if self.exists(own):
            return own, {}
        above = {} if self.exists(asked) else {asked: self.laid_on(ModelPool(self.default_parent_of(asked), user=user))}
        return own, above | {own: self.laid_on(ModelPool(asked, of_hub=True))}

    def default_parent_of(self, pool: str) -> str:
        parent = self.default_parent
        usable = self.exists(parent) and not self.pool(parent).fifo and pool not in self.chain(parent)
        return parent if usable else ROOT

    def laid_on(self, pool: ModelPool) -> ModelPool:
        subpool = self.configured.get(pool.parent, ModelPool()).subpool
        if subpool is not None:
            pool.max_total, pool.max_running = subpool
        return pool

    def over_limit(self, pool: str, made: ModelPool | None, user: str) -> str | None:
        """At which pool a start is refused; `@user` for the cap on ephemeral pools."""
        for each in self.chain(made.parent if made else pool):
            if self.counts(each)[0] >= self.limits(each)[0]:
                return each
        return self.over_cap(made, user)

    def over_cap(self, made: ModelPool | None, user: str) -> str | None:
        mine = sum(each.user == user for each in self.ephemeral.values())
        return "@user" if made is not None and not made.of_hub and mine >= self.per_user else None

    def start(self, name: str, user: str, asked: str, *, vanilla: bool) -> str | None:
        pool, made = self.target_of_start(asked, user)
        refused = self.over_limit(pool, next(iter(made.values()), None), user)
        if refused is not None:
            return refused
        self.ephemeral |= made
        operation = ModelOperation(name, user, vanilla, pool)
        blocking = self.blocking(operation, pool)
        self.operations[name] = operation
        self.put(operation, blocking)
        return None

    def end(self, name: str) -> None:
        operation = self.operations[name]
        chain, had_slot = self.chain(operation.pool), operation.waits_at is None
        self.put(operation, None)
        del self.operations[name]
        self.sweep()
        if had_slot:
            self.offer(chain)

    def move(self, name: str, asked: str) -> str | None:
        operation = self.operations[name]
        pool, made = self.target(asked, operation.user)
        if pool == operation.pool and operation.waits_at is None:
            return None
        refused = self.over_cap(made, operation.user)
        if refused is None and made is not None and 0 in self.limits_of(made):
            refused = pool
        if refused is not None:
            return refused
        counts_already = operation.waits_at is None and not self.is_light(operation)
        above = self.chain(operation.pool) if counts_already else []
        light = made is None and self.is_light(operation, pool)
        for each in self.chain(made.parent if made else pool):
            total, running = self.limits(each)
            if each not in above and (self.counts(each)[0] >= total or (not light and self.counts(each)[1] >= running)):
                return each
        if made is not None:
            self.ephemeral[pool] = made
        chain = self.chain(operation.pool)
        operation.pool = pool
        self.put(operation, None)
        self.sweep()
        if not self.only_on_scan:
            self.offer(chain)
        return None

    def sweep(self) -> None:
        """Ephemeral pools that nothing lives in are gone."""
        while True:
            used = {each.pool for each in self.operations.values()} | {p.parent for p in self.ephemeral.values()}
            used |= {pool for pool, queue in self.queues.items() if queue}
            gone = [name for name in self.ephemeral if name not in used]
            if not gone:
                return
            for name in gone:
                del self.ephemeral[name]

    def reconfigured(self) -> None:
        """`configured` and the tree's options are others than they were."""
        for name in [name for name in self.ephemeral if name in self.configured]:
            del self.ephemeral[name]
        self.sweep()
        used = {each.parent for each in self.ephemeral.values()} | {each.pool for each in self.operations.values()}
        lost = sorted((name for name in used if not self.exists(name)), key=lambda name: name != self.default_parent)
        for name in lost:
            self.ephemeral[name] = self.laid_on(ModelPool(self.default_parent_of(name)))
        off = {
            name
            for name, pool in self.ephemeral.items()
            if pool.of_hub and pool.parent in self.configured and not self.configured[pool.parent].hub
        }
        for name, pool in self.ephemeral.items():
            if name not in off:
                self.laid_on(pool)
        for each in sorted(self.operations.values(), key=lambda each: each.number):
            if each.pool in off:
                hub = self.ephemeral[each.pool].parent
                each.pool = hub
                if each.waits_at in off:
                    self.put(each, hub)
        homeless = [each for each in self.waiting() if not self.exists(str(each.waits_at))]
        for each in sorted(homeless, key=lambda each: each.number):
            full = next((pool for pool in self.chain(each.pool) if not self.free(pool)), each.pool)
            self.put(each, full)
        self.sweep()
        for each in sorted(self.waiting(), key=lambda each: each.number):
            if self.is_light(each):
                self.put(each, None)
        if not self.only_on_scan:
            self.settle()
        self.sweep()
