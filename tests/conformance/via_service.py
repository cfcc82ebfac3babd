"""The engines as the services have them: told by encoded messages on a bus that loses and repeats, and read as their readers do.

Configuration comes as it is stored, operations as admission tells them, usage in parts of snapshots; flows go to integral, which answers
with volumes; shares go out in parts of snapshots and are put together by a reader. What was lost is asked for again, as readers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig, PoolTree, Tree
from headrace.pools.pool_config import FifoSortParameter, PoolMode
from headrace.pools.stored_tree import read_tree, write_tree
from headrace.pools.tree_options import TreeIntegralOptions, TreeOptions
from headrace.resources import RESOURCE_NAMES
from headrace.runtime.engine import Moment
from headrace.wire.codec import decode, encode
from headrace.wire.integral import Advance, Advanced, PoolVolume, Volume
from headrace.wire.ledger import LiveOperation, WholeOperations
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.pools import GetPools, PoolList, PoolView
from headrace.wire.snapshot_parts import SnapshotPublisher, SnapshotReader
from headrace.wire.snapshots import (
    ShareFrame,
    ShareItem,
    SharePart,
    UsageFrame,
    UsageItem,
    UsagePart,
    WholeRequest,
)
from headrace.wire.version import NEVER, Version
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.hdrf.model import (
    UNLIMITED,
    ErrorKind,
    GuaranteeError,
    IntegralState,
    OperationInput,
    PoolInput,
    TreeInput,
)
from headrace_fair_share.update.results import PoolResults
from headrace_fair_share.update.updater import Update, Updater
from headrace_fair_share.view import pool_list
from headrace_integral.engine import IntegralEngine, VolumesRecord
from tests.conformance.reporting import Unsupported
from tests.support.clocks import NOW
from tests.support.fair_share import computed
from tests.support.update_result import ElementShares, UpdateResult

__all__ = ["shared_out", "shown"]

TREE: Final = TreeName("default")
#: Operations on a page.
_PAGE: Final = 500
_LOST: Final = 0.3
_REPEATED: Final = 0.3


def shared_out(tree: TreeInput, dt_us: int | None, random: Random) -> UpdateResult:
    """One update of a tree, `dt_us` after another, through messages. Raises `Unsupported` for what no message tells."""
    engine, update = _updated(tree, dt_us, random)
    items, frame = _read(update.frame, update.changed, random)
    return _result(tree, items, frame, engine)


def shown(tree: TreeInput) -> dict[str, PoolView]:
    """The pools of a tree, the root among them, as people see them after an update."""
    engine, _ = _updated(tree, None, Random(1))
    answer = pool_list(engine, GetPools(), NEVER)
    assert isinstance(answer, PoolList)
    return {pool.name: pool for pool in answer.pools}


def _updated(tree: TreeInput, dt_us: int | None, random: Random) -> tuple[FairShareEngine, Update]:
    if any(each.best_allocation_share != UNLIMITED for each in tree.operations):
        raise Unsupported("a best allocation share is told by no message")
    averages = [*(pool.historic_usage_average for pool in tree.pools)]
    averages += [each.historic_usage_average for each in tree.operations]
    if any(averages):
        raise Unsupported("averages of historic usage are told by no message: the service makes them of what it hears")
    engine = FairShareEngine(TREE, 1, EngineOptions())
    configured = read_tree(write_tree(Tree(tree=TREE, pools=_pools(tree.pools), options=_options(tree))))
    # Cases have trees, too, that no configuration would be allowed to be.
    configuration = engine.configuration
    configuration.pools, configuration.is_known, configuration.revision = PoolTree(configured), True, 1
    configuration.put_in_force({})
    engine.pool_results = {
        PoolName(name): PoolResults(grant_ratio=state.last_share_ratio) for name, state in tree.integral.items()
    }
    engine.on_operations(_operations(tree), NOW)
    engine.on_usage(_usage(tree, random), NOW)
    integral = IntegralEngine(TREE, 1, VolumesRecord(TREE, Version(1, 1), _volumes(tree)))
    # The first advance of a life lets no time pass.
    moments = [NOW] if dt_us is None else [NOW, Moment(NOW.steady_ns + dt_us * 1_000, NOW.wall_ms + dt_us // 1_000)]
    engine.on_leading(2, [], NOW)
    for now in moments:
        engine.on_update_due(now)
        _exchange(engine, integral, now, random)
    return engine, computed(engine, Updater(), moments[-1])


def _exchange(engine: FairShareEngine, integral: IntegralEngine, now: Moment, random: Random) -> None:
    """fair_share sends its advances until integral has confirmed them."""
    while (advance := engine.volumes.chain.head()) is not None:
        if random.random() < _LOST:
            continue
        outcome = integral.on_advance(decode(encode(advance), Advance), now)
        answer = outcome.answer
        for save in outcome.effects:
            answer = integral.on_saved(decode(encode(save.record), VolumesRecord), now).answer
        assert isinstance(answer, Advanced), answer
        if random.random() >= _LOST:
            engine.on_advance_answer(decode(encode(answer), Advanced), now)


def _lossy(parts: Iterable[bytes], random: Random) -> list[bytes]:
    """What arrives of messages, and in which order."""
    arrived = [part for part in parts if random.random() >= _LOST]
    arrived += [part for part in arrived if random.random() < _REPEATED]
    random.shuffle(arrived)
    return arrived


def _carried(
    publisher: SnapshotPublisher[Any, Any],
    reader: SnapshotReader[Any, Any],
    part_type: type[Any],
    versions: Iterable[Callable[[], list[bytes]]],
    random: Random,
) -> None:
    """Publishes versions; the reader takes what arrives, and asks for the whole until it has the newest."""
    for publish in versions:
        for data in _lossy(publish(), random):
            reader.on_part(decode(data, part_type))
    request = WholeRequest()
    while reader.needs_whole or reader.version != publisher.version:
        for data in _lossy([publisher.page(request)], random):
            part = decode(data, part_type)
            reader.on_part(part)
            last = part.part + 1 >= part.parts
            request = WholeRequest() if last else WholeRequest(version=part.version, part=part.part + 1)


def _usage(tree: TreeInput, random: Random) -> UsageChange:
    """Usage of all operations, told twice: first as if none ran, then as it is."""
    frame = UsageFrame(total=tree.total, complete=True)
    publisher: SnapshotPublisher[UsageItem, UsageFrame] = SnapshotPublisher(
        UsagePart, TREE, 1, frame, key=lambda item: item.operation
    )
    reader: SnapshotReader[UsageItem, UsageFrame] = SnapshotReader(TREE, UsageFrame(), key=lambda item: item.operation)
    idle = [UsageItem(OperationId(each.name)) for each in tree.operations]
    used = [
        UsageItem(
            OperationId(each.name),
            usage=each.usage,
            pending=each.demand - each.usage,
            pending_jobs=each.pending_job_count,
        )
        for each in tree.operations
    ]
    _carried(
        publisher,
        reader,
        UsagePart,
        [lambda: publisher.advance(frame, idle), lambda: publisher.advance(frame, used)],
        random,
    )
    return UsageChange(reader.version, reader.frame, list(reader.items.values()), whole=True)


def _read(frame: ShareFrame, items: list[ShareItem], random: Random) -> tuple[dict[str, ShareItem], ShareFrame]:
    """The shares as a reader has them that lost some and got others twice."""
    publisher: SnapshotPublisher[ShareItem, ShareFrame] = SnapshotPublisher(
        SharePart, TREE, 1, ShareFrame(), key=lambda item: item.key
    )
    reader: SnapshotReader[ShareItem, ShareFrame] = SnapshotReader(TREE, ShareFrame(), key=lambda item: item.key)
    _carried(publisher, reader, SharePart, [lambda: publisher.advance(frame, items)], random)
    return reader.items, reader.frame


def _pools(pools: list[PoolInput]) -> list[Pool]:
    names = [PoolName(pool.name) for pool in pools]
    return [
        Pool(PoolName(pool.name), names[pool.parent] if pool.parent >= 0 else ROOT_POOL, _settings(pool))
        for pool in pools
    ]


def _settings(pool: PoolInput) -> PoolConfig:
    return PoolConfig(
        mode=PoolMode(pool.mode.value),
        weight=pool.weight,
        strong_guarantee_resources=PartialResources(*pool.strong_guarantee),
        resource_limits=PartialResources(*pool.limits),
        integral_guarantees=IntegralGuarantees(
            guarantee_type=IntegralType(pool.integral.value),
            resource_flow=PartialResources(*pool.resource_flow.as_tuple()),
            burst_guarantee_resources=PartialResources(*pool.burst_guarantee.as_tuple()),
            relaxed_share_multiplier_limit=pool.relaxed_share_multiplier_limit,
            can_accept_free_volume=pool.can_accept_free_volume,
            should_distribute_free_volume_among_children=pool.distribute_free_volume,
        ),
        fifo_sort_parameters=tuple(FifoSortParameter(key.value) for key in pool.fifo_sort),
        enable_step_function_for_gang_operations=pool.gang_step_function,
        enable_fifo_children_reordering_for_guarantee_utilization=pool.fifo_reordering,
        compute_promised_guarantee_fair_share=pool.compute_promised_guarantee,
        enable_priority_strong_guarantee_adjustment=pool.priority_strong_guarantee,
        enable_priority_strong_guarantee_adjustment_donorship=pool.priority_strong_guarantee_donor,
        infer_children_weights_from_historic_usage=pool.historic_usage_weights,
    )


def _options(tree: TreeInput) -> TreeOptions:
    options = tree.options
    return TreeOptions(
        main_resource=RESOURCE_NAMES[options.main_resource],
        integral_guarantees=TreeIntegralOptions(
            smooth_period=round(options.smooth_period_s * 1000),
            pool_capacity_saturation_period=round(options.saturation_period_s * 1000),
            relaxed_share_multiplier_limit=options.relaxed_share_multiplier_limit,
        ),
        should_distribute_free_volume_among_children=options.distribute_free_volume,
        infer_weight_from_guarantees_share_multiplier=options.infer_weight_multiplier,
        enable_step_function_for_gang_operations=options.gang_step_function,
        enable_fifo_children_reordering_for_guarantee_utilization=options.fifo_reordering,
        enable_improved_fair_share_by_fit_factor_computation=options.improved,
        enable_improved_fair_share_by_fit_factor_computation_distribution_gap=options.distribution_gap,
        charge_skipped_relaxed_pools=options.charge_skipped_relaxed_pools,
    )


def _volumes(tree: TreeInput) -> list[PoolVolume]:
    volumes = []
    for name, state in tree.integral.items():
        user_slots, cpu, gpu, memory, network = state.volume
        volume = Volume(user_slots, round(cpu), gpu, memory, network)
        volumes.append(PoolVolume(PoolName(name), volume, ratio_volume=0.0))
    return volumes


def _parts(volume: Volume) -> tuple[float, float, float, float, float]:
    return (volume.user_slots, float(volume.cpu), volume.gpu, volume.memory, volume.network)


def _operations(tree: TreeInput) -> list[LiveOperation]:
    """All operations, as they come in pages."""
    live = [_live(tree, each) for each in tree.operations]
    pages = [
        decode(encode(WholeOperations(1, 1, live[at : at + _PAGE])), WholeOperations)
        for at in range(0, len(live), _PAGE)
    ]
    return [operation for page in pages for operation in page.operations]


def _live(tree: TreeInput, operation: OperationInput) -> LiveOperation:
    spec = OperationSpec(
        pool=PoolName(tree.pools[operation.pool].name),
        argv=["work"],
        weight=operation.weight,
        is_gang=operation.gang,
        resource_limits=PartialResources(*operation.limits),
    )
    return LiveOperation(
        operation=OperationId(operation.name),
        user="anna",
        spec=spec,
        state=OperationState.RUNNING,
        suspended=False,
        ephemeral_pool=False,
        started_at_ms=operation.start_time_ms,
        block=1,
        block_term=1,
        done=b"\0",
    )


def _result(tree: TreeInput, items: dict[str, ShareItem], frame: ShareFrame, engine: FairShareEngine) -> UpdateResult:
    grants = {name: figures.grant_ratio for name, figures in engine.pool_results.items()}
    return UpdateResult(
        root=_element(items[f"/{ROOT_POOL}"]),
        pools={pool.name: _element(items[f"/{pool.name}"]) for pool in tree.pools},
        operations={each.name: _element(items[each.name]) for each in tree.operations},
        integral={
            name: IntegralState(_parts(known.volume), grants.get(name, 0.0))
            for name, known in engine.volumes.of.items()
        },
        errors=[
            GuaranteeError(ErrorKind(each.kind), each.text, [str(pool) for pool in each.pools])
            for each in frame.complaints
        ],
    )


def _element(item: ShareItem) -> ElementShares:
    fair = item.fair_share
    return ElementShares(
        fair_share=fair.total,
        strong_part=fair.strong_guarantee,
        integral_part=fair.integral_guarantee,
        weight_proportional_part=fair.weight_proportional,
        promised_guarantee_fair_share=item.promised_fair_share,
        demand_share=item.demand_share,
        usage_share=item.usage_share,
        limits_share=item.limits_share,
        strong_guarantee_share=item.strong_guarantee_share,
        integral_guarantee_share=item.proposed_integral_share,
        estimated_guarantee_share=item.estimated_guarantee_share,
        weight=item.weight,
        dominant_resource=RESOURCE_NAMES.index(item.dominant_resource),
        fifo_index=item.fifo_index,
        effective_fifo_index=item.effective_fifo_index,
        flow_ratio=item.specified_resource_flow_ratio,
        burst_ratio=item.specified_burst_ratio,
        total_flow_ratio=item.total_resource_flow_ratio,
        total_burst_ratio=item.total_burst_ratio,
    )
