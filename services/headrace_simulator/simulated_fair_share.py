"""Fair share and integral in a replay. An update is computed when it is due and takes no simulated time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from headrace.pools import Tree
from headrace.runtime.engine import Moment, Outcome
from headrace.wire.integral import Advance, Advanced, parts_of
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import Event
from headrace.wire.replay import ReplayTask
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_fair_share.configuration.change_decisions import StoredTree
from headrace_fair_share.effects import Compute, Effect, KeepBrokenTree, Publish, SendAdvance
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.known_volumes import AdvanceAnswer
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import FailedUpdate, Updater
from headrace_integral.engine import IntegralEngine, VolumesRecord
from headrace_simulator.simulated_node import BrokenReplay

_TERM: Final = 1
_US_PER_MS: Final = 1_000
#: Shortest time between two updates, in microseconds. If a step of the replay is shorter, its length is used instead.
_SPACING_US: Final = 50_000
#: Age in microseconds above which usage no longer counts. Usage is reported whenever it changes, so it is never too old.
_NEVER_US: Final = 10**15
#: Number of steps after which an update is computed from scratch and not from the previous update.
STEPS_UNTIL_AFRESH: Final = 10


class ReplayedShares:
    """The shares of a replay, computed by the engines of fair share and integral."""

    def __init__(
        self, task: ReplayTask, after: Tree, publish: Callable[[Publish], None], *, steps_until_afresh: int
    ) -> None:
        step_us = task.step_ms * _US_PER_MS
        options = EngineOptions(
            usage_counts_within_us=_NEVER_US,
            update_spacing_us=min(step_us, _SPACING_US),
            update_period_us=step_us,
            full_update_period_us=steps_until_afresh * step_us,
        )
        # The period in the options of the tree is not used: with it a replay would compute as many updates as the real service did.
        own = msgspec.structs.replace(after.options, fair_share_update_period=None)
        self._after = msgspec.structs.replace(after, options=own)
        self._publish = publish
        self.engine = FairShareEngine(task.tree, _TERM, options)
        volumes = VolumesRecord(task.tree, pools=task.volumes)
        self._integral = IntegralEngine(task.tree, _TERM, volumes if task.volumes else None)
        self._updater = Updater()

    def begin(self, operations: Sequence[LiveOperation], pools: Sequence[Event], now: Moment) -> None:
        """Take over the operations and pools that exist at the beginning."""
        self.engine.on_leading(_TERM, [], now)
        self.engine.on_stored_tree(StoredTree(1, self._after), now)
        self.engine.on_operations(operations, now)
        self.engine.on_events(pools, now)

    def on_events(self, events: Sequence[Event], now: Moment) -> None:
        """Apply events that admission recorded."""
        self.engine.on_events(events, now)

    def on_usage(self, usage: UsageChange, now: Moment) -> None:
        """Apply usage that the allocator reported."""
        self.engine.on_usage(usage, now)

    def seconds_until_update(self, now: Moment) -> float:
        """Return the seconds until the next update is due, 0 if it is due now."""
        return self.engine.seconds_until_update(now)

    @property
    def starving(self) -> int:
        """The starvation of all pools and operations together according to the last update: 0 if nothing starves."""
        return int(self.engine.clocks.starvation.sum()) + len(self.engine.yarn.dues)

    def cut(self, changed: Collection[str], effect: Publish) -> ShareSnapshot:
        """Return the shares in the form in which the allocator takes them."""
        frame = effect.frame
        return ShareSnapshot(self.engine.items, changed, effect.removed, frame.total, frame.options)

    def update(self, now: Moment) -> None:
        """Compute an update."""
        effects = deque(self.engine.on_update_due(now).effects)
        while effects:
            effects.extend(self._perform(effects.popleft(), now).effects)

    def _perform(self, effect: Effect, now: Moment) -> Outcome[None, Effect]:
        match effect:
            case SendAdvance(advance):
                return self.engine.on_advance_answer(self._advanced(advance, now), now)
            case Compute(cut, afresh):
                update = self._updater.compute(cut, afresh=afresh)
                if isinstance(update, FailedUpdate):
                    raise BrokenReplay(f"an update of the shares failed: {update.fault}")
                return self.engine.on_updated(update, now)
            case Publish():
                self._publish(effect)
                return self.engine.on_published(now)
            case KeepBrokenTree():
                raise BrokenReplay(f"an update of the shares is wrong: {effect.fault}")
        return Outcome(None)

    def _advanced(self, advance: Advance, now: Moment) -> AdvanceAnswer | None:
        for part in parts_of(advance):
            outcome = self._integral.on_advance(part, now)
            for save in outcome.effects:
                self._integral.on_saved(save.record, now)
                record = save.record
                return Advanced(advance.tree, record.version, record.pools, record.downtime)
        raise BrokenReplay(f"integral does not apply an advance: {outcome.answer}")
