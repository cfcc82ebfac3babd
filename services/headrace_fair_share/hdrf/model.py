"""The input of an update of the vector fair share, and the errors that the update reports. Values only.

Amounts are integers (cpu in hundredths), in the order of `headrace.resources.RESOURCE_NAMES`. Shares are floats: fractions of the total.
Volumes are amounts times seconds.

Section: docs/reference/fair-share-algorithm.md#2-the-tree
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.pools.pool_config import DEFAULT_FIFO_SORT, FifoSortParameter, IntegralType, PoolMode
from headrace.resources import ZERO, Resources, Share

#: For each resource an amount, or None if no amount is given, which differs from zero.
Partial = tuple[int | None, int | None, int | None, int | None, int | None]
#: For each resource a limit, or None if there is no limit.
Limits = Partial
#: Amounts times seconds, by resource; for cpu in hundredths of a core-second.
VolumeAmounts = tuple[float, float, float, float, float]

NO_LIMIT: Final[Limits] = (None, None, None, None, None)
UNLIMITED: Final[Share] = (1.0, 1.0, 1.0, 1.0, 1.0)


class IntegralState(msgspec.Struct, frozen=True):
    """The state of an integral pool that is kept between updates."""

    volume: VolumeAmounts = (0.0, 0.0, 0.0, 0.0, 0.0)
    #: Largest component of the integral share granted by the last update.
    last_share_ratio: float = 0.0


class Sharing(enum.StrEnum):
    """Rules by which the resources of a tree are shared."""

    #: Vector fair share: nothing gets more than it demands.
    VECTOR = "vector"
    #: Shares by the rules of YARN's FairScheduler; they do not depend on demand.
    YARN = "yarn"


class UpdateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a tree that the algorithm reads."""

    sharing: Sharing = Sharing.VECTOR
    #: True: the root divides only memory among its children. Used only under YARN's rules of sharing.
    memory_only: bool = False
    #: Index of the main resource in the order of resources.
    main_resource: int = 1
    smooth_period_s: float = 60.0
    saturation_period_s: float = 86_400.0
    relaxed_share_multiplier_limit: float = 3.0
    gang_step_function: bool = False
    fifo_reordering: bool = False
    improved: bool = False
    distribution_gap: bool = False
    infer_weight_multiplier: float | None = None
    #: Like `saturation_period_s`, used only by the service that advances the volumes; shares do not depend on it.
    distribute_free_volume: bool = False
    #: True: a relaxed pool with empty volume is charged for its last grant forever, as in YTsaurus. False: it is not charged.
    charge_skipped_relaxed_pools: bool = False


class PoolInput(msgspec.Struct, frozen=True, kw_only=True):
    """A pool in the input of an update. A parent comes before its children."""

    name: str
    #: Position of the parent among the pools; -1 for the root.
    parent: int
    mode: PoolMode = PoolMode.FAIR_SHARE
    #: Weight of the pool. None: inferred from guarantees if the tree says so, else 1.
    weight: float | None = None
    strong_guarantee: Partial = NO_LIMIT
    limits: Limits = NO_LIMIT
    integral: IntegralType = IntegralType.NONE
    resource_flow: Resources = ZERO
    burst_guarantee: Resources = ZERO
    #: Upper bound of the share that the pool is granted from its volume, as a multiple of its flow ratio. None: the tree's value.
    relaxed_share_multiplier_limit: float | None = None
    #: True: the pool accepts free volume. Used only by the service that advances the volumes; shares do not depend on it.
    can_accept_free_volume: bool = True
    #: Used only by the service that advances the volumes. None: the tree's value.
    distribute_free_volume: bool | None = None
    fifo_sort: tuple[FifoSortParameter, ...] = DEFAULT_FIFO_SORT
    gang_step_function: bool = True
    fifo_reordering: bool = True
    compute_promised_guarantee: bool = False
    priority_strong_guarantee: bool = False
    priority_strong_guarantee_donor: bool = False
    #: True: the pool divides only memory among its children. Used only under YARN's rules of sharing.
    memory_only: bool = False
    #: True: historic usage lowers the weights of the pool's children. Each weight is multiplied by 2 to the power of minus the child's
    #: average usage share.
    historic_usage_weights: bool = False
    #: Average over time of the pool's usage share; used only if the parent has `historic_usage_weights`.
    historic_usage_average: float = 0.0


class OperationInput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An operation in the input of an update: a leaf that uses resources and demands more."""

    name: str
    #: Position of the operation's pool among the pools.
    pool: int
    weight: float = 1.0
    demand: Resources = ZERO
    usage: Resources = ZERO
    limits: Limits = NO_LIMIT
    gang: bool = False
    best_allocation_share: Share = UNLIMITED
    start_time_ms: int = 0
    pending_job_count: int = 0
    #: Average over time of the operation's usage share; used only if the pool has `historic_usage_weights`.
    historic_usage_average: float = 0.0
    #: False while the operation is pending or suspended; YARN's rules of sharing then ignore the operation.
    takes_part: bool = True


class NodeSet(msgspec.Struct, frozen=True):
    """Nodes that match some filters, and the elements that can use only these nodes."""

    #: Total resources of these nodes.
    resources: Resources
    #: Positions in `TreeInput.node_classes` of the classes that can use only these nodes.
    classes: tuple[int, ...] = ()
    #: Positions of the pools that can use only these nodes.
    pools: tuple[int, ...] = ()


class TreeInput(msgspec.Struct, frozen=True, kw_only=True):
    """The whole input of one update. The children of a pool have the order in which they stand here; its child pools come before its
    operations.
    """

    total: Resources
    options: UpdateOptions = UpdateOptions()
    pools: list[PoolInput] = []
    operations: list[OperationInput] = []
    #: State of integral pools by pool name, with the present volumes.
    integral: dict[str, IntegralState] = {}
    #: Classes of operations that can run on some nodes only. Each class contains the positions of all operations that can run on the same
    #: nodes.
    node_classes: tuple[tuple[int, ...], ...] = ()
    #: Sets of nodes. The operations that can run only on nodes of a set together never get more than the resources of these nodes.
    node_sets: tuple[NodeSet, ...] = ()


class ErrorKind(enum.StrEnum):
    """Kinds of errors that an update reports without failing."""

    OVERCOMMIT_FLOW = "overcommit_flow"
    OVERCOMMIT_BURST = "overcommit_burst"
    #: The guarantees of pools exceed the resources of the nodes that match the filters of these pools.
    OVERCOMMIT_NODES = "overcommit_nodes"
    NESTED_PROMISED_GUARANTEE = "nested_promised_guarantee"
    PRIORITY_WITHOUT_DONOR = "priority_without_donor"


class GuaranteeError(msgspec.Struct, frozen=True):
    """An error of guarantees: a text with figures, and the pools that the error concerns."""

    kind: ErrorKind
    text: str
    pools: list[str] = []
