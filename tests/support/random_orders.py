"""Random trees of pools with operations, as the allocator knows them, and random changes of them."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.pools.tree_options import BatchScheduling
from headrace.resources import ZERO, Resources, Share
from headrace.wire.ledger import LiveOperation
from headrace.wire.snapshots import DetailedShare, ElementKind, PreemptionPriority, ShareItem, StarvationStatus
from headrace_allocator.decision.view import Overlay, View
from tests.support.allocating import Desk, an_operation

__all__ = ["RandomTree"]

GIB: Final = 1024**3
NODES: Final = {"n": Resources(20, 1000, 2, 16 * GIB), "m": Resources(8, 400, 0, 32 * GIB)}
TOTAL: Final = Resources(28, 1400, 2, 48 * GIB)
_BATCHES: Final = BatchScheduling(3, PartialResources(user_slots=1, cpu=250))
FILTERS: Final = ("", "", "fast", "!fast", "fast | large")


class RandomTree(Desk):
    """Two nodes, up to seven pools of which some are fifo, some limited, and up to fourteen operations of several sizes.

    In a broad tree there are seven more of both, and most pools stand beside each other.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(NODES)
        self.random = random
        self.depth = random.randint(1, 3)
        self.is_broad = random.random() < 0.3
        pools, operations = random.randint(1, 7), random.randint(1, 14)
        if self.is_broad:
            pools, operations = pools + 7, operations + 7
        self.names = [f"p{number}" for number in range(pools)]
        self.fifo = {name for name in self.names if random.random() < 0.3}
        self.coarse = random.random() < 0.5
        self.node("n").record.tags.extend(random.choice([[], ["fast"], ["large"]]))
        for node in self.nodes:
            self.beat(node)
        self.operations = [self.an_operation(f"o{number}") for number in range(operations)]
        # One in ten is named by no snapshot so far.
        self.engine.on_operations(self.operations, self.now)
        self.change_shares()

    def an_operation(self, name: str) -> LiveOperation:
        random = self.random
        size = Resources(
            random.choice([1, 1, 2]), random.choice([50, 100, 100, 130, 300]), random.choice([0, 0, 0, 1]),
            random.choice([0, GIB, 3 * GIB]),
        )  # fmt: skip
        live = an_operation(name, random.randint(1, 12), size)
        spec = msgspec.structs.replace(
            live.spec,
            pool=PoolName(random.choice([*self.names, *self.names, ROOT_POOL, "unknown"])),
            scheduling_tag_filter=random.choice(FILTERS),
            resource_limits=random.choice([NOTHING, NOTHING, NOTHING, PartialResources(cpu=300)]),
            resource_limits_overcommit_tolerance=random.choice([NOTHING, PartialResources(cpu=200)]),
        )
        return msgspec.structs.replace(live, spec=spec)

    def a_share(self) -> Share:
        """Often equal ones, and often none."""
        if self.coarse:
            return self.random.choice([(0.0, 0.0, 0.0, 0.0, 0.0), (0.2, 0.1, 0.0, 0.1, 0.0), (0.5, 0.5, 0.0, 0.5, 0.0)])
        user_slots, cpu, gpu, memory = (self.random.random() for _ in range(4))
        return (user_slots, cpu, gpu, memory, 0.0)

    def an_item(self, kind: ElementKind, name: str, parent: str) -> ShareItem:
        random, fair = self.random, self.a_share()
        return ShareItem(
            kind,
            name,
            PoolName(parent),
            fair_share=DetailedShare(total=fair),
            demand_share=random.choice([fair, (1.0, 1.0, 1.0, 1.0, 0.0)]),
            dominant_resource=random.choice(["cpu", "memory"]),
            rank=random.randint(0, 3),
            promised_fair_share=self.a_share(),
            usage_share=self.a_share(),
        )

    def change_shares(self) -> None:
        """All pools and most operations get other shares; pools move, and get other limits and options."""
        random = self.random
        items = []
        own, order = random.random() < 0.6, random.choice(list(FifoPoolSchedulingOrder))
        for number, name in enumerate(self.names):
            above = [ROOT_POOL, *self.names[:number]][-self.depth :]
            parent = ROOT_POOL if self.is_broad and random.random() < 0.8 else random.choice(above)
            limits = random.choice(
                [NOTHING, NOTHING, PartialResources(cpu=random.choice([150, 400])), PartialResources(user_slots=3)]
            )
            options = EffectiveOptions(
                use_pool_satisfaction_for_scheduling=own if random.random() < 0.8 else not own,
                fifo_pool_scheduling_order=order,
                allow_aggressive_preemption=random.random() < 0.8,
                allow_normal_preemption=random.random() < 0.9,
                resource_limits_overcommit_tolerance=random.choice([NOTHING, PartialResources(cpu=100)]),
                min_job_resource_limits=random.choice([*[NOTHING] * 8, PartialResources(cpu=150)]),
                max_job_resource_limits=random.choice([*[NOTHING] * 8, PartialResources(cpu=150)]),
            )
            item = self.an_item(ElementKind.POOL, name, parent)
            items.append(msgspec.structs.replace(item, limits=limits, options=options))
        for live in self.operations:
            known = self.facts.operations.get(live.operation)
            if known is None:
                continue
            if random.random() < 0.1:
                # As before.
                items += [known.share] if known.share is not None else []
            else:
                item = self.an_item(ElementKind.OPERATION, live.operation, live.spec.pool)
                fifo = random.randint(0, 9) if live.spec.pool in self.fifo else None
                priority = random.choice([PreemptionPriority.NONE, *PreemptionPriority])
                starvation = random.choice([StarvationStatus.NON_STARVING, *StarvationStatus])
                items.append(
                    msgspec.structs.replace(
                        item, fifo_index=fifo, preemption_priority=priority, starvation_status=starvation
                    )
                )
        self.options = msgspec.structs.replace(
            self.options,
            preemption_satisfaction_threshold=random.choice([1.0, 1.5]),
            non_preemptible_resource_usage_threshold=random.choice([NOTHING, NOTHING, PartialResources(cpu=150)]),
            allow_preemption_from_starving_operations=random.random() < 0.2,
            take_excess_for_few_nodes=random.random() < 0.5,
            enable_guarantee_priority_scheduling=random.random() < 0.3,
            batch_operation_scheduling=random.choice([None, None, None, _BATCHES]),
        )
        self.tell(items, total=TOTAL)

    def overlay(self, node: str) -> Overlay:
        """A fresh overlay over a node."""
        ranking = self.engine.ranking
        return Overlay(View.of(self.facts, self.node(node), ranking.order, 1000, (), ranking.batches.of_priority))

    def take_victims(self, overlay: Overlay) -> None:
        """Takes some allocations away in an overlay."""
        for allocation in overlay.view.allocations:
            operation = overlay.view.operations.get(allocation.operation)
            if operation is not None and self.random.random() < 0.4:
                overlay.use(operation, ZERO - allocation.resources)
