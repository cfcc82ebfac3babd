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

#: An amount or None per resource: a missing amount differs from zero.
Partial = tuple[int | None, int | None, int | None, int | None, int | None]
#: A limit or None (no limit) per resource.
Limits = Partial
#: Amounts times seconds; cpu in whole hundredths of a core-second.
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
    #: The shares of YARN's FairScheduler, which do not depend on demand.
    YARN = "yarn"


class UpdateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a tree that the algorithm reads."""

    sharing: Sharing = Sharing.VECTOR
    #: Under YARN's shares: the root divides only memory among its children.
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
    #: Used only by the service that advances the volumes, like `saturation_period_s`.
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
    #: Upper bound of the pool's share from its volume, as a multiple of its flow. None: the tree's value.
    relaxed_share_multiplier_limit: float | None = None
    #: Used only by the service that advances the volumes; shares do not depend on it.
    can_accept_free_volume: bool = True
    #: Used only by the service that advances the volumes. None: the tree's value.
    distribute_free_volume: bool | None = None
    fifo_sort: tuple[FifoSortParameter, ...] = DEFAULT_FIFO_SORT
    gang_step_function: bool = True
    fifo_reordering: bool = True
    compute_promised_guarantee: bool = False
    priority_strong_guarantee: bool = False
    priority_strong_guarantee_donor: bool = False
    #: Under YARN's shares: the pool divides only memory among its children.
    memory_only: bool = False
    #: The weights of the children fall with their historic usage: weight times 2 to the power of minus the average.
    historic_usage_weights: bool = False
    #: Average of the pool's own usage share, if the parent uses it for weights.
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
    #: Average of the operation's usage share, if the pool uses it for weights.
    historic_usage_average: float = 0.0
    #: False while the operation is pending or suspended; under YARN's shares it is then ignored.
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
    """The whole input of one update. Children keep their order here; pools come before operations."""

    total: Resources
    options: UpdateOptions = UpdateOptions()
    pools: list[PoolInput] = []
    operations: list[OperationInput] = []
    #: State of integral pools by pool name, with the present volumes.
    integral: dict[str, IntegralState] = {}
    #: Positions of operations that can run on some nodes only, grouped by the nodes they can run on.
    node_classes: tuple[tuple[int, ...], ...] = ()
    #: Sets of nodes. For each set, the sum over the operations that can run only on its nodes never exceeds the resources of its nodes.
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
    """An error as a text with figures, and the pools that it concerns."""

    kind: ErrorKind
    text: str
    pools: list[str] = []
