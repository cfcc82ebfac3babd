"""The configuration of pools and trees as data: its Structs, the values that can be set, and an index.

`pool_config` and `tree_options` hold the Structs that cross the wire and are stored. `attributes` describes each value that can
be set. `pool_tree` returns the values in force for a pool. fair_share owns the configuration and decides which configurations are legal.
"""

from __future__ import annotations

from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.attributes.kinds import Defects
from headrace.pools.attributes.pool_attributes import POOL_ATTRIBUTES, PRESET_ATTRIBUTES
from headrace.pools.attributes.schema import Attribute, Changed, Record, Schema, Support, Who
from headrace.pools.attributes.tree_attributes import TREE_ATTRIBUTES
from headrace.pools.pool_config import (
    EVERYBODY,
    Access,
    EphemeralSubpoolConfig,
    FifoSortParameter,
    IntegralGuarantees,
    IntegralType,
    PoolConfig,
    PoolMode,
)
from headrace.pools.pool_tree import PoolTree
from headrace.pools.presets import preset_names, preset_problems, problems_of_preset
from headrace.pools.rights import Person, Right, person_of
from headrace.pools.stored_tree import Pool, Tree, read_tree, write_tree
from headrace.pools.tree_options import PreemptionPolicy, ShareModel, TreeIntegralOptions, TreeOptions, YarnOptions

__all__ = [
    "EVERYBODY",
    "NOTHING",
    "POOL_ATTRIBUTES",
    "PRESET_ATTRIBUTES",
    "TREE_ATTRIBUTES",
    "Access",
    "Attribute",
    "Changed",
    "Defects",
    "EphemeralSubpoolConfig",
    "FifoSortParameter",
    "IntegralGuarantees",
    "IntegralType",
    "PartialResources",
    "Person",
    "Pool",
    "PoolConfig",
    "PoolMode",
    "PoolTree",
    "PreemptionPolicy",
    "Record",
    "Right",
    "Schema",
    "ShareModel",
    "Support",
    "Tree",
    "TreeIntegralOptions",
    "TreeOptions",
    "Who",
    "YarnOptions",
    "person_of",
    "preset_names",
    "preset_problems",
    "problems_of_preset",
    "read_tree",
    "write_tree",
]
