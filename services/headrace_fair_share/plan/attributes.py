"""The attributes that pools and operations have only in the file of a plan."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.pools import NOTHING, POOL_ATTRIBUTES, Attribute, PartialResources, PoolConfig, Schema
from headrace.pools.attributes.kinds import Flag, Number, Whole, Word
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.pool_config import LARGEST_WEIGHT, SMALLEST_WEIGHT
from headrace.wire.operations import LARGEST_JOB_COUNT

_AVERAGE: Final = Attribute("historic_usage_average", Number(0, 1e6), "average of the usage share")


class PlannedPool(PoolConfig, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of a pool in the file of a plan: the settings that every pool has, and attributes that only such a file has."""

    historic_usage_average: float = 0.0
    #: Volume as amounts times seconds. None: the volume that the flow of the pool adds in one smooth period, as under steady demand.
    accumulated_resource_volume: PartialResources | None = None
    #: The volume as a share of the cluster times seconds, in place of amounts.
    accumulated_resource_ratio_volume: float | None = None


class PlannedOperation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An operation in a plan. The file gives the number and size of its jobs, or the demand and usage of all its jobs together."""

    pool: str = ""
    weight: float = 1.0
    job_count: int | None = None
    running_jobs: int | None = None
    resources: PartialResources | None = None
    resource_demand: PartialResources | None = None
    resource_usage: PartialResources | None = None
    resource_limits: PartialResources = NOTHING
    is_gang: bool = False
    historic_usage_average: float = 0.0


PLANNED_POOL_ATTRIBUTES: Final = Schema(
    PlannedPool,
    [
        *POOL_ATTRIBUTES.attributes.values(),
        _AVERAGE,
        Attribute("accumulated_resource_volume", ResourceAmounts(), "savings, amounts times seconds"),
        Attribute("accumulated_resource_ratio_volume", Number(0, 1e12), "savings, share of the cluster times seconds"),
    ],
    keeps_unknown=True,
)
OPERATION_ATTRIBUTES: Final = Schema(
    PlannedOperation,
    [
        Attribute("pool", Word("a pool"), "the pool of the operation"),
        Attribute("weight", Number(SMALLEST_WEIGHT, LARGEST_WEIGHT), "weight among the operations of its pool"),
        Attribute("job_count", Whole(0, LARGEST_JOB_COUNT), "number of jobs"),
        Attribute("running_jobs", Whole(0, LARGEST_JOB_COUNT), "number of jobs that run"),
        Attribute("resources", ResourceAmounts(), "resources of each job"),
        Attribute("resource_demand", ResourceAmounts(), "demand of all jobs together"),
        Attribute("resource_usage", ResourceAmounts(), "usage of the jobs that run"),
        Attribute("resource_limits", ResourceAmounts(), "the most that it may use"),
        Attribute("is_gang", Flag(), "all of its jobs start together, or none"),
        _AVERAGE,
    ],
)
