"""Containers and their owners, as the searches for victims see them."""

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
    #: All that it has, without what is marked already.
    kept: Resources
    fair_share: Resources
    #: That of its pool.
    policy: QueuePolicy
    #: False below a pool from which nothing may be taken.
    may_lose: bool = True

    def may_fall_to(self, left: Resources, total: Resources) -> bool:
        """True if so much is not below its fair share. Exactly that much may be left."""
        return self.may_lose and not is_below(left, self.fair_share, total, self.policy)


class Container(NamedTuple, Generic[Id]):
    """A container that runs on some node."""

    id: Id
    owner: Owner
    size: Resources
    is_master: bool = False
