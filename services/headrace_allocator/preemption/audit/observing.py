"""Observed preemption: record what would be preempted if pools with `preemption=observe` allowed it. Nothing is preempted.

A decision is observed as a whole: victims in other pools that belong to the same decision are not preempted either.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from headrace.ids import OperationId, PoolName
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Figure, Moment, by_label, counter
from headrace.wire.codec import runs_within
from headrace.wire.preemption import ListObserved, ObservedPreemption, ObservedPreemptions, PreemptionReason
from headrace_allocator.decision.view import Overlay
from headrace_allocator.facts.facts import Facts
from headrace_allocator.preemption.audit.records import record_of
from headrace_allocator.preemption.overcommit_and_limits import asked_gracefully
from headrace_allocator.preemption.stages import run_stages
from headrace_allocator.preemption.victims import Preemption

#: Number of the newest observed preemptions that are kept, for the whole tree.
_MOST_REMEMBERED: Final = 1_000
_PAGE_BYTES: Final = 256 * 1024


def would_be_preempted(overlay: Overlay, *, stages: bool, may_start: bool) -> list[Preemption]:
    """Decide again with observing pools treated like other pools. Return the preemptions that would happen.

    `stages` is true if the preemptive stages ran and started nothing. `may_start` is false if the limit of starts per heartbeat is
    reached.
    """
    overlay.observes, leafless = True, overlay.leafless
    found = [one for one in asked_gracefully(overlay) if _only_observes(overlay, one)]
    for outcome in run_stages(overlay, may_start=may_start) if stages else ():
        if any(_only_observes(overlay, one) for one in outcome.preemptions):
            found += outcome.preemptions
    # The count of pools without an operation to start (`leafless`) does not change: the real stages counted the same pools already.
    overlay.observes, overlay.leafless = False, leafless
    return found


def _only_observes(overlay: Overlay, preemption: Preemption) -> bool:
    operation = overlay.view.operations[preemption.allocation.operation]
    return operation.options(overlay.view.pools).preemption is PreemptionSwitch.OBSERVE


class ObservedPreemptionLog:
    """The newest preemptions that were only observed. A preemption that is observed again on the next heartbeat is recorded once."""

    def __init__(self) -> None:
        self._last: deque[ObservedPreemption] = deque(maxlen=_MOST_REMEMBERED)
        self._counts: Counter[PreemptionReason] = Counter()

    def note(self, facts: Facts, preemptions: Iterable[Preemption], now: Moment) -> list[ObservedPreemption]:
        """Record the observed preemptions of one heartbeat. Return those that were not recorded before."""
        new = []
        gone: dict[OperationId, Resources] = {}
        for one in preemptions:
            allocation, operation = one.allocation, facts.operations[one.allocation.operation]
            before = gone.get(operation.id, ZERO)
            gone[operation.id] = before + allocation.usage
            known, beneficiary = allocation.observed, one.beneficiary.id if one.beneficiary else OperationId("")
            if known is not None and (known.reason, known.beneficiary) == (one.reason, beneficiary):
                continue
            boottime_ms = facts.nodes[allocation.node].boottime_ms
            record = record_of(one, operation, facts.pools, now, boottime_ms=boottime_ms, observed=True, gone=before)
            allocation.observed = record
            self._counts[one.reason] += 1
            new.append(ObservedPreemption(allocation.node, allocation.id, operation.id, operation.spec.pool, record))
        self._last.extendleft(new)
        return new

    def page(self, facts: Facts, request: ListObserved) -> ObservedPreemptions:
        """Return a page of the newest observed preemptions below a pool, the newest first."""
        asked = islice(self._below(facts, request.pool), request.limit)
        return ObservedPreemptions(next(runs_within(asked, _PAGE_BYTES), []))

    def figures(self) -> list[Figure]:
        """Return the metric of observed preemptions by reason."""
        says = "Allocations that would have been preempted where preemption is only observed, by reason."
        would_preempt = counter("would_preempt", "allocations", 0, says)
        counts = {reason.value: self._counts[reason] for reason in PreemptionReason}
        return by_label(would_preempt, "would_preempt_by", "reason", counts)

    def _below(self, facts: Facts, pool: PoolName) -> Iterator[ObservedPreemption]:
        everywhere = pool in ("", facts.pools.root.name)
        return (one for one in self._last if everywhere or pool in facts.pools.path(one.pool))
