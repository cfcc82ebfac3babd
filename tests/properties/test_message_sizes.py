"""No message outgrows the wire: every kind of message is in the list here, and each is made at the largest sizes there are.

A kind is safe by its type alone, where names are as long as they may be and texts and lists have bounds; or builders make it here of
the largest legal contents; or a person makes it, who is told when it is too large. Another kind fails the test.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args, get_type_hints

import msgspec
import pytest

import headrace.wire
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, MessageTooLarge, encode
from headrace.wire.consumption import Columns, ConsumptionPage, ConsumptionRecord
from headrace.wire.explanations import WaitingExplained
from headrace.wire.figures import FiguresAnswer
from headrace.wire.files import PIECE_BYTES
from headrace.wire.groups import ChangeGroup, Group, GroupList, GroupsOfPerson
from headrace.wire.happenings import Missed, OperationHistory, Recorded, StarvationChanged
from headrace.wire.heartbeat import Heartbeat, Orders
from headrace.wire.history import HistorySample, PoolHistory
from headrace.wire.integral import Advance, Advanced
from headrace.wire.ledger import (
    Released,
    ReleasedAnswer,
    ReportAnswer,
    ReportEnds,
    WholeOperations,
    WholeOperationsRequest,
)
from headrace.wire.log import LogBatch, Published
from headrace.wire.lost_work import LostWorkTold
from headrace.wire.nodes import LongestLeaseRecord, NodeList, NodeRecord, OperationPlaces, WhereRequest
from headrace.wire.plan import Plan, PlanRefused
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.preemption import (
    LARGEST_RECORD_BYTES,
    ListObserved,
    ObservedPreemptions,
    PreemptionReason,
    PreemptionRecord,
)
from headrace.wire.refusals import BrokenRules, OverLimit, Refusal
from headrace.wire.replay import LogPage, Replay, ReplayRefused, ReplayTask
from headrace.wire.rights import Rights
from headrace.wire.services import ServiceView
from headrace.wire.sessions import SessionTurn
from headrace.wire.simulation import Simulation, SimulationRefused, SimulationTask
from headrace.wire.snapshot_parts import Applied
from headrace.wire.snapshots import Part, SharePart, UsageItem, UsagePart
from headrace.wire.start_plans import FitOperation, OperationFit, PlanStart, StartPlanned
from headrace.wire.trees import CreateTree, ListTrees, TreeList
from headrace.wire.version import WhoAnswer, WhoRequest
from headrace.wire.what_if import WhatIf, WhatIfAnswer
from headrace_admission.consumption import records
from headrace_admission.files.archive_book import ArchiveRecord
from headrace_admission.files.archive_pieces import HASH_BYTES
from headrace_admission.nodes.join_tokens import Token
from headrace_fair_share.configuration.store import LARGEST_TREE_BYTES
from tests.support.largest import admission, agent, allocator, fair_share
from tests.support.largest.bounds import most_bytes
from tests.support.largest.names import an_operation

Builder = Callable[[], Iterator[msgspec.Struct]]

BUILDERS: Final[dict[Builder, set[type]]] = {
    admission.operations: {
        LogBatch,
        Published,
        Recorded,
        wire.StartAnswer,
        StartPlanned,
        wire.OperationView,
        wire.OperationList,
        wire.OperationExplanation,
    },
    admission.consumption: {ConsumptionPage},
    admission.counts: {wire.PoolCounts},
    admission.ends: {ReportAnswer, wire.JobPage, WholeOperations},
    admission.ephemeral_pools: {OverLimit, WholeOperations},
    admission.histories: {LogPage, OperationHistory},
    admission.lost_work: {LostWorkTold},
    admission.groups: {Group, GroupList, GroupsOfPerson},
    admission.rights: {Rights},
    agent.heartbeats: {Heartbeat},
    allocator.orders: {Heartbeat, Orders, OperationPlaces, UsagePart, WaitingExplained, OperationFit},
    allocator.left_to_successors: {LongestLeaseRecord},
    allocator.views_of_nodes: {NodeList},
    allocator.observed_preemptions: {ObservedPreemptions},
    allocator.reports: {ReportEnds, ReportAnswer, Released, ReleasedAnswer},
    fair_share.advances: {Advance, Advanced},
    fair_share.clocks: set(),
    fair_share.configurations: {PoolPlan, BrokenRules, TreeList},
    fair_share.histories: {HistorySample, PoolHistory},
    fair_share.pools: {PoolList},
    fair_share.shares: {SharePart},
    fair_share.what_ifs: {WhatIfAnswer},
}
#: A person makes them. Nothing is sent of one that is too large, and the person is told.
OF_PEOPLE: Final[set[type]] = {
    wire.StartOperation,
    wire.ListOperations,
    wire.UpdateOperation,
    wire.CountPools,
    ChangeGroup,
    ChangePools,
    CreateTree,
    FitOperation,
    GetPools,
    ListObserved,
    ListTrees,
    PlanStart,
    SessionTurn,
    WhatIf,
    WhereRequest,
}
#: Names of what there is, a few words, or as many figures as the code has.
OF_FEW_WORDS: Final[set[type]] = {FiguresAnswer, ServiceView, WhoAnswer, WhoRequest, WholeOperationsRequest}
#: They do not travel by themselves.
NO_MESSAGES: Final[set[type]] = {
    *(
        Applied,
        Columns,
        Missed,
        Part,
        Plan,
        PlanRefused,
        Replay,
        ReplayRefused,
        ReplayTask,
        Simulation,
        SimulationRefused,
        SimulationTask,
        StarvationChanged,
        UsageItem,
    ),
    ConsumptionRecord,
}
#: Words on one thing that somebody named; what is too long for a message is answered by its size (see the test of borders).
OF_ONE_THING: Final[set[type]] = set(get_args(Refusal)) - {BrokenRules, OverLimit}

A_FEW_FIGURES: Final = 1_000
#: The values of each bucket: made by a builder, a record that its type bounds, or of so many bytes where they are written.
BUCKETS: Final[dict[str, Builder | type | int]] = {
    "ARCHIVES_BUCKET": ArchiveRecord,
    "CHECKPOINT_BUCKET": LARGEST_MESSAGE_BYTES,
    "CLOCKS_BUCKET": fair_share.clocks,
    "CONSUMPTION_BUCKET": records.LARGEST_RECORD_BYTES,
    "GROUPS_BUCKET": admission.groups,
    "KEYS_BUCKET": Token,
    "LEASES_BUCKET": A_FEW_FIGURES,
    "NODES_BUCKET": NodeRecord,
    "NODE_LEASES_BUCKET": allocator.left_to_successors,
    "PIECES_BUCKET": PIECE_BYTES + HASH_BYTES,
    "POOLS_BUCKET": LARGEST_TREE_BYTES,
    "TERMS_BUCKET": A_FEW_FIGURES,
    "VOLUMES_BUCKET": fair_share.advances,
}


def messages() -> set[type]:
    """Structs of the wire that are answers, or no part of another."""
    kinds: set[Any] = set()
    for module in pkgutil.iter_modules(headrace.wire.__path__):
        content = vars(importlib.import_module(f"headrace.wire.{module.name}")).values()
        kinds |= {one for one in content if isinstance(one, type) and issubclass(one, msgspec.Struct)}
    kinds = {one for one in kinds if one.__module__.startswith("headrace.wire.") and not one.__name__.startswith("_")}
    inner: set[type] = set()
    for kind in kinds:
        for hint in get_type_hints(kind, include_extras=True).values():
            inner |= set(within(hint))
    return {one for one in kinds if one not in inner or one.__struct_config__.tag_field == "refusal"}


def within(hint: Any) -> Iterator[type]:
    """The classes that a type is made of."""
    if isinstance(hint, type):
        yield hint
    for inner in get_args(hint):
        yield from within(inner)


def test_every_kind_of_message_has_a_bound_by_its_type_or_is_in_the_list() -> None:
    listed = set().union(*BUILDERS.values()) | OF_PEOPLE | OF_FEW_WORDS | NO_MESSAGES | OF_ONE_THING
    large = {kind for kind in messages() if most_bytes(kind) > LARGEST_MESSAGE_BYTES}

    assert not {kind.__name__ for kind in large - listed}
    assert not {kind.__name__ for kind in listed - messages() - {SharePart, UsagePart}}


@pytest.mark.long
@pytest.mark.parametrize(
    "builder", BUILDERS, ids=lambda builder: f"{builder.__module__.rpartition('.')[2]}.{builder.__name__}"
)
def test_no_message_outgrows_the_wire(builder: Builder) -> None:
    made: set[type] = set()
    for message in builder():
        made.add(type(message))
        encode(message)

    assert BUILDERS[builder] <= made


def test_every_bucket_has_values_that_fit_a_message() -> None:
    assert {name for name in vars(subjects) if name.endswith("_BUCKET")} == BUCKETS.keys()
    assert max(bound for bound in BUCKETS.values() if isinstance(bound, int)) <= LARGEST_MESSAGE_BYTES
    assert max(most_bytes(kind) for kind in (ArchiveRecord, NodeRecord, Token)) <= LARGEST_MESSAGE_BYTES


def test_a_person_whose_request_is_too_large_is_told_so() -> None:
    spec = wire.OperationSpec(admission.NEW_POOL, ["x" * LARGEST_MESSAGE_BYTES])

    with pytest.raises(
        MessageTooLarge, match=r"StartOperation: .* bytes, but a message has at most .*; nothing was sent"
    ):
        encode(wire.StartOperation(an_operation(0), spec))


def test_the_record_of_a_preemption_is_no_longer_than_it_says() -> None:
    share = (1 / 3,) * 5
    for reason in PreemptionReason:
        record = PreemptionRecord(reason, an_operation(0), False, 2**53, 2**62, 2, 1 / 3, share, share, share)

        assert len(encode(record)) <= LARGEST_RECORD_BYTES
