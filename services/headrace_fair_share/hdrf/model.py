"""The input of an update of the vector fair share, and its complaints. Values only.

Amounts are integers (cpu in hundredths), in the order of `headrace.resources.RESOURCE_NAMES`. Shares are floats, fractions of the
total. Volumes are amounts times seconds.

Section: docs/reference/fair-share-algorithm.md#2-the-tree
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.pools.pool_config import DEFAULT_FIFO_SORT, FifoSortParameter, IntegralType, PoolMode
from headrace.resources import ZERO, Resources, Share

#: An amount or None per resource: absent is not the same as zero.
Partial = tuple[int | None, int | None, int | None, int | None, int | None]
#: A limit or None (no limit) per resource.
Limits = Partial
#: Amounts times seconds; cpu in hundredths of a core-second, whole.
Volume = tuple[float, float, float, float, float]

NO_LIMIT: Final[Limits] = (None, None, None, None, None)
UNLIMITED: Final[Share] = (1.0, 1.0, 1.0, 1.0, 1.0)


class IntegralState(msgspec.Struct, frozen=True):
    """The state of an integral pool that lasts from update to update."""

    volume: Volume = (0.0, 0.0, 0.0, 0.0, 0.0)
    #: Largest component of the integral share granted at the last update.
    last_share_ratio: float = 0.0


class Sharing(enum.StrEnum):
    """Ways to divide a tree."""

    #: Vector fair share, as far as there is demand.
    VECTOR = "vector"
    #: YARN's, whatever is demanded.
    YARN = "yarn"


class UpdateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a tree that the algorithm reads."""

    sharing: Sharing = Sharing.VECTOR
    #: As `PoolInput.memory_only`, of the root.
    memory_only: bool = False
    #: Place of the main resource in the order of resources.
    main_resource: int = 1
    smooth_period_s: float = 60.0
    saturation_period_s: float = 86_400.0
    relaxed_share_multiplier_limit: float = 3.0
    gang_step_function: bool = False
    fifo_reordering: bool = False
    improved: bool = False
    distribution_gap: bool = False
    infer_weight_multiplier: float | None = None
    #: For the service that advances the volumes, as `saturation_period_s`.
    distribute_free_volume: bool = False
    #: True: as upstream, a relaxed pool with empty savings keeps being charged for its last grant, for ever. False: it is not.
    charge_skipped_relaxed_pools: bool = False


class PoolInput(msgspec.Struct, frozen=True, kw_only=True):
    """A pool in the input of an update. Its parent stands before it."""

    name: str
    #: Place of the parent among the pools; -1 for the root.
    parent: int
    mode: PoolMode = PoolMode.FAIR_SHARE
    #: None: inferred, or 1.
    weight: float | None = None
    strong_guarantee: Partial = NO_LIMIT
    limits: Limits = NO_LIMIT
    integral: IntegralType = IntegralType.NONE
    resource_flow: Resources = ZERO
    burst_guarantee: Resources = ZERO
    #: None: that of the tree.
    relaxed_share_multiplier_limit: float | None = None
    #: For the service that advances the volumes; shares do not depend on it.
    can_accept_free_volume: bool = True
    #: Likewise; None: as the tree.
    distribute_free_volume: bool | None = None
    fifo_sort: tuple[FifoSortParameter, ...] = DEFAULT_FIFO_SORT
    gang_step_function: bool = True
    fifo_reordering: bool = True
    compute_promised_guarantee: bool = False
    priority_strong_guarantee: bool = False
    priority_strong_guarantee_donor: bool = False
    #: Where shares are YARN's: it divides memory alone over its children.
    memory_only: bool = False
    #: Weights of children fall with their historic usage: 2 to the power of minus its average.
    historic_usage_weights: bool = False
    #: Average of its own usage share, if its parent asks for it.
    historic_usage_average: float = 0.0


class OperationInput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An operation in the input of an update: a leaf that uses resources and demands more."""

    name: str
    #: Place of its pool among the pools.
    pool: int
    weight: float = 1.0
    demand: Resources = ZERO
    usage: Resources = ZERO
    limits: Limits = NO_LIMIT
    gang: bool = False
    best_allocation_share: Share = UNLIMITED
    start_time_ms: int = 0
    pending_job_count: int = 0
    #: Average of its usage share, if its pool asks for it.
    historic_usage_average: float = 0.0
    #: False while it is held back or suspended: under YARN's shares it counts for nothing then.
    takes_part: bool = True


class NodeSet(msgspec.Struct, frozen=True):
    """Nodes that match some filters, and the elements that can have nothing of any other nodes."""

    #: Of these nodes together.
    resources: Resources
    #: Places among the classes of operations, and among the pools.
    classes: tuple[int, ...] = ()
    pools: tuple[int, ...] = ()


class TreeInput(msgspec.Struct, frozen=True, kw_only=True):
    """The whole input of one update. Children stand in their order, pools before operations."""

    total: Resources
    options: UpdateOptions = UpdateOptions()
    pools: list[PoolInput] = []
    operations: list[OperationInput] = []
    #: By pool name; volumes as they are now.
    integral: dict[str, IntegralState] = {}
    #: Places of operations that can run on some nodes only, those of the same nodes together.
    node_classes: tuple[tuple[int, ...], ...] = ()
    #: Nodes of which these operations have no more together than there is.
    node_sets: tuple[NodeSet, ...] = ()


class ErrorKind(enum.StrEnum):
    """Kinds of complaints of an update, which goes on all the same."""

    OVERCOMMIT_FLOW = "overcommit_flow"
    OVERCOMMIT_BURST = "overcommit_burst"
    #: Pools are guaranteed more than the nodes have that match their filters.
    OVERCOMMIT_NODES = "overcommit_nodes"
    NESTED_PROMISED_GUARANTEE = "nested_promised_guarantee"
    PRIORITY_WITHOUT_DONOR = "priority_without_donor"


class GuaranteeError(msgspec.Struct, frozen=True):
    """A complaint in words with figures, and the pools that it concerns."""

    kind: ErrorKind
    text: str
    pools: list[str] = []
