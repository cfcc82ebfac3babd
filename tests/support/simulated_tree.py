"""A tree in simulated time: the engines of fair_share and integral with nothing between them but their messages.

Jobs follow their shares at once: what an update owes an operation it uses until the next one, as far as it wants it. So the figures show
what the guarantees alone do, and a day passes in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools import Pool, Tree, TreeOptions
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Moment
from headrace.wire.codec import decode, encode
from headrace.wire.integral import Advance, Advanced
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace_fair_share.configuration.change_decisions import StoredTree
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.known_volumes import AdvanceAnswer
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Update, Updater
from headrace_integral.engine import IntegralEngine, VolumesRecord
from tests.support.clocks import NOW
from tests.support.fair_share import computed
from tests.support.tree_services import live

__all__ = ["PoolPoint", "SimulatedTree"]

TREE = TreeName("default")
#: Midnight somewhere.
_BEGIN_MS = 1_700_006_400_000
#: Every update goes on from the one before it.
OPTIONS = EngineOptions(full_update_period_us=2**62)


class PoolPoint(msgspec.Struct, frozen=True):
    """A pool as of one update; cpu in cores, volume in core-seconds."""

    demand: float
    fair_share: float
    strong_part: float
    integral_part: float
    weight_proportional_part: float
    volume: float


class SimulatedTree:
    """One tree, from update to update. Each pool that wants something has one operation of one-core jobs."""

    def __init__(self, total: Resources, pools: Iterable[Pool], options: TreeOptions | None = None) -> None:
        self.total = total
        #: True while the allocator knows all nodes.
        self.complete = True
        self.integral = IntegralEngine(TREE, 1)
        self.now_ms = 0
        #: Cores that are wanted, by pool.
        self.wanted: dict[PoolName, int] = {}
        self._usage_epoch = 0
        self._revision = 0
        self.tree = Tree(tree=TREE)
        self.begin_fair_share(1)
        self.configure(pools, options)

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms * 1_000_000, _BEGIN_MS + self.now_ms)

    def begin_fair_share(self, term: int) -> None:
        """fair_share has begun a life that knows nothing but what everybody tells it."""
        self.fair_share = FairShareEngine(TREE, term, OPTIONS)
        self._updater = Updater()
        self.fair_share.on_stored_tree(StoredTree(self._revision, self.tree), self.now)
        self._tell_operations()

    def configure(self, pools: Iterable[Pool], options: TreeOptions | None = None) -> None:
        """The tree is configured so. Raises `ValueError` where it must not be."""
        self.tree = Tree(tree=TREE, pools=list(pools), options=options or TreeOptions())
        self._revision += 1
        self.fair_share.on_stored_tree(StoredTree(self._revision, self.tree), self.now)
        if self.fair_share.configuration.trouble:
            raise ValueError(self.fair_share.configuration.trouble)

    def wants(self, pool: str, cores: int) -> None:
        """From now on the pool has work for so many cores."""
        self.wanted[PoolName(pool)] = cores
        self._tell_operations()

    def update(self, after_ms: int) -> Update:
        """Time passes, then an update: usage is heard, volumes are advanced, shares worked out."""
        self.begin_update(after_ms)
        self.exchange()
        return self.finish_update()

    def begin_update(self, after_ms: int) -> None:
        """Time passes, usage is heard, volumes are to be advanced."""
        self.now_ms += after_ms
        self._hear_usage()
        self.fair_share.on_update_due(self.now)

    def finish_update(self) -> Update:
        """Shares are worked out with the volumes that are known."""
        return computed(self.fair_share, self._updater, self.now)

    def exchange(self) -> None:
        """fair_share sends what integral has not confirmed, until it has."""
        while (advance := self.unconfirmed()) is not None:
            self.answered(self._advanced(advance))

    def unconfirmed(self) -> Advance | None:
        """The oldest advance that integral has not confirmed."""
        return self.fair_share.volumes.chain.head()

    def answered(self, answer: AdvanceAnswer) -> None:
        """Integral answers that advance."""
        self.fair_share.on_advance_answer(answer, self.now)

    def points(self) -> Mapping[PoolName, PoolPoint]:
        """All configured pools as of the last update."""
        return {name: self._point(name) for name in self.fair_share.configuration.pools.preorder}

    def _point(self, name: PoolName) -> PoolPoint:
        cores = self.total.cpu / 100
        item, volume = self.fair_share.items[f"/{name}"], self.fair_share.volumes.of.get(name)
        share = item.fair_share
        return PoolPoint(
            demand=item.demand_share[1] * cores,
            fair_share=share.total[1] * cores,
            strong_part=share.strong_guarantee[1] * cores,
            integral_part=share.integral_guarantee[1] * cores,
            weight_proportional_part=share.weight_proportional[1] * cores,
            volume=volume.volume.cpu / 100 if volume is not None else 0.0,
        )

    def _tell_operations(self) -> None:
        operations = [live(_operation(name), name, wanted) for name, wanted in self.wanted.items() if wanted]
        self.fair_share.on_operations(operations, self.now)

    def _hear_usage(self) -> None:
        self._usage_epoch += 1
        items = [self._usage_of(name, wanted) for name, wanted in self.wanted.items() if wanted]
        frame = UsageFrame(total=self.total, complete=self.complete)
        change = UsageChange(Version(1, self._usage_epoch), frame, items, whole=True)
        self.fair_share.on_usage(change, self.now)

    def _usage_of(self, pool: PoolName, wanted: int) -> UsageItem:
        item = self.fair_share.items.get(_operation(pool))
        running = min(wanted, int(item.fair_share.total[1] * self.total.cpu / 100 + 1e-6)) if item is not None else 0
        job, waiting = Resources(user_slots=1, cpu=100), wanted - running
        return UsageItem(
            OperationId(_operation(pool)),
            usage=job * running,
            precommit=ZERO,
            pending_jobs=waiting,
            pending=job * waiting,
        )

    def _advanced(self, advance: Advance) -> Advanced:
        """What integral answers, as it comes over the wire; its state is what was saved."""
        outcome = self.integral.on_advance(decode(encode(advance), Advance), NOW)
        if not outcome.effects:
            raise AssertionError(f"not applied: {outcome}")
        record = decode(encode(outcome.effects[0].record), VolumesRecord)
        return decode(encode(self.integral.on_saved(record, NOW).answer), Advanced)


def _operation(pool: str) -> str:
    return f"work-{pool}"
