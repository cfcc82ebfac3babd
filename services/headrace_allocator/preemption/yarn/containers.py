"""Containers (YARN's word for allocations) and their owners, in the form that the searches for victims use."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from headrace.resources import Resources
from headrace.yarn_comparison import QueuePolicy, is_below

Id = TypeVar("Id", bound=Hashable)


@dataclass(slots=True, eq=False)
class Owner:
    """An operation that may lose containers."""

    name: str
    #: Everything the operation holds, without containers that are already marked as victims.
    kept: Resources
    fair_share: Resources
    #: The scheduling policy of the operation's pool.
    policy: QueuePolicy
    #: False below a pool that allows no preemption.
    may_lose: bool = True

    def may_fall_to(self, left: Resources, total: Resources) -> bool:
        """True if preemption may reduce the operation's resources to `left`: it may lose containers, and `left` is not below its fair
        share.
        """
        return self.may_lose and not is_below(left, self.fair_share, total, self.policy)


class Container(NamedTuple, Generic[Id]):
    """A container that runs on a node."""

    id: Id
    owner: Owner
    size: Resources
    is_master: bool = False
