"""The configuration of pools and trees as data: what it is made of, what can be set, and an index of what is in force.

`settings` and `options` hold the Structs that cross the wire and are stored, `pool_attributes` and `tree_attributes` say everything
about each attribute, `tree` answers what is in force where. Which configurations are legal is decided by their owner, fair_share.
"""

from __future__ import annotations

from headrace.pools.access import EVERYBODY, Person, Right, may, person_of
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.pools.attribute import Attribute, Changed, Effect, Record, Schema, Who
from headrace.pools.kinds import Defects
from headrace.pools.model import Pool, Tree, read_tree, write_tree
from headrace.pools.options import PreemptionPolicy, ShareModel, TreeIntegralOptions, TreeOptions, YarnOptions
from headrace.pools.pool_attributes import POOL_ATTRIBUTES, PRESET_ATTRIBUTES
from headrace.pools.presets import preset_names, preset_problems, problems_of_preset
from headrace.pools.settings import (
    Access,
    EphemeralSubpoolConfig,
    FifoSortParameter,
    IntegralGuarantees,
    IntegralType,
    PoolMode,
    PoolSettings,
)
from headrace.pools.tree import PoolTree
from headrace.pools.tree_attributes import TREE_ATTRIBUTES

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
    "Effect",
    "EphemeralSubpoolConfig",
    "FifoSortParameter",
    "IntegralGuarantees",
    "IntegralType",
    "PartialResources",
    "Person",
    "Pool",
    "PoolMode",
    "PoolSettings",
    "PoolTree",
    "PreemptionPolicy",
    "Record",
    "Right",
    "Schema",
    "ShareModel",
    "Tree",
    "TreeIntegralOptions",
    "TreeOptions",
    "Who",
    "YarnOptions",
    "may",
    "person_of",
    "preset_names",
    "preset_problems",
    "problems_of_preset",
    "read_tree",
    "write_tree",
]
