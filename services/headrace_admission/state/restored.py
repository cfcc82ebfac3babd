"""The parts of a checkpoint, as they are read. Pure."""

from __future__ import annotations

import msgspec

from headrace.ids import TreeName
from headrace_admission.lost_work import LostWorkRow
from headrace_admission.state.ephemeral_pools import TreePools
from headrace_admission.state.operation import OperationRecord


class Page(msgspec.Struct, frozen=True):
    """Some of the operations, of the ephemeral pools, or of the lost work."""

    operations: list[OperationRecord]
    pools: list[TreePools] = []
    lost_work: list[LostWorkRow] = []


class Restored(msgspec.Struct, frozen=True):
    """The rest of a checkpoint, which is read after its pages."""

    #: Sequence of the last log entry that the checkpoint covers.
    sequence: int = 0
    allocator_terms: dict[TreeName, int] = {}
