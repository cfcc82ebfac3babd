"""The search of YARN's older policy: an amount is taken across the whole cluster, from the branch (queue or operation) that would be
served last. Pure.

A container is warned first. It is preempted if it is still needed after a waiting time. Source: section 6 of the specification of YARN's
FairScheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple

from headrace.resources import ZERO, Resources
from headrace.yarn_comparison import ComparedChild, QueuePolicy, is_less, serving_key
from headrace_allocator.preemption.yarn.containers import Id


class Size(NamedTuple, Generic[Id]):
    """A container and its size."""

    id: Id
    size: Resources


@dataclass(slots=True, eq=False)
class Branch(Generic[Id]):
    """A queue or an operation, with its usage minus the containers that were warned in this round."""

    name: str
    usage: Resources
    fair_share: Resources = ZERO
    least: Resources = ZERO
    weight: float = 1.0
    began: int = 0
    policy: QueuePolicy = QueuePolicy.DRF
    #: False for a queue that allows no preemption.
    may_lose: bool = True
    above: Branch[Id] | None = None
    below: list[Branch[Id]] = field(default_factory=list)
    #: Containers of an operation that are not warned, the first victim first; None for a queue.
    containers: Iterator[Size[Id]] | None = None

    @property
    def sibling(self) -> ComparedChild:
        """The branch in the form in which it is compared with its siblings. This comparison ignores demand."""
        return ComparedChild(self.name, self.usage, ZERO, self.least, self.weight, self.began)

    @property
    def has_queues(self) -> bool:
        """True if at least one child is a queue."""
        return any(each.containers is None for each in self.below)

    def lose(self, amount: Resources) -> None:
        """Subtract an amount from the usage of the branch and of all branches above it."""
        branch: Branch[Id] | None = self
        while branch is not None:
            branch.usage, branch = branch.usage - amount, branch.above


#: A function that returns the branch of a container's operation and the size of the container, or None if the container is gone or ending.
Find = Callable[[Id], "tuple[Branch[Id], Resources] | None"]


class Round(Generic[Id]):
    """One round: an amount to take, beginning with the containers that were warned in earlier rounds."""

    def __init__(
        self,
        left: Resources,
        root: Branch[Id],
        total: Resources,
        *,
        needy_quirk: bool = False,
        skips_content: bool = True,
    ) -> None:
        self._left = left
        self._root = root
        self._total = total
        self._needy_quirk = needy_quirk
        #: True: queues that have nothing above their share are skipped. False: the round ends at such a queue, as in Hadoop before the last
        #: 2.8 releases.
        self._skips_content = skips_content

    def take_warned(self, branch: Branch[Id], size: Resources) -> bool:
        """Take a container that was warned in an earlier round: subtract its size from its branch and from the amount that is left.

        If the amount is already reached, change nothing and return False.
        """
        if not self._is_some_left:
            return False
        branch.lose(size)
        self._left = self._left - size
        return True

    def pick(self) -> Size[Id] | None:
        """Take one more container, from the branch that would be served last.

        Return None if the branch has no container, or if the amount of the round is already reached.
        """
        branch = self._last() if self._is_some_left else None
        found = next(branch.containers, None) if branch is not None and branch.containers is not None else None
        if branch is None or found is None:
            return None
        branch.lose(found.size)
        self._left = self._left - found.size
        return found

    @property
    def _is_some_left(self) -> bool:
        return is_less(ZERO, self._left, self._total, self._root.policy)

    def _last(self) -> Branch[Id] | None:
        branch, policy = self._root, self._root.policy
        while branch.has_queues:
            below = [each for each in branch.below if each.containers is None and self._may_be_taken(each, branch)]
            if not below:
                return None
            branch, policy = max(below, key=self._served(branch.policy)), branch.policy
        have_some = [each for each in branch.below if each.usage != ZERO]
        if not have_some or not self._is_above_share(branch, policy):
            return None
        return max(have_some, key=self._served(branch.policy))

    def _served(self, policy: QueuePolicy) -> Callable[[Branch[Id]], Any]:
        key = serving_key(policy, self._total, demand_counts=False, needy_quirk=self._needy_quirk)
        return lambda branch: key(branch.sibling)

    def _may_be_taken(self, branch: Branch[Id], above: Branch[Id]) -> bool:
        if not branch.may_lose:
            return False
        if not self._skips_content:
            return True
        if branch.has_queues:
            return any(self._may_be_taken(each, branch) for each in branch.below if each.containers is None)
        return self._is_above_share(branch, above.policy)

    def _is_above_share(self, branch: Branch[Id], policy: QueuePolicy) -> bool:
        if policy is QueuePolicy.DRF:
            return not branch.fair_share.dominates(branch.usage)
        return branch.usage.memory > branch.fair_share.memory


class WarnedContainers(Generic[Id]):
    """The warned containers. A container that is no longer needed is removed; if it is picked again, its waiting time starts anew."""

    def __init__(self) -> None:
        #: Time of each warning, in milliseconds.
        self.listed: dict[Id, int] = {}

    def take(self, part: Round[Id], find: Find[Id], now_ms: int, wait_ms: int) -> Iterator[Id | None]:
        """Run one round. Each step takes one container, and yields it if its warning is older than `wait_ms`, else None.

        `find` returns the branch of a container and its size, or None if the container is gone or ending.
        """
        before, self.listed = self.listed, {}
        for one, warned_ms in before.items():
            found = find(one)
            if found is not None and part.take_warned(*found):
                self.listed[one] = warned_ms
                yield one if now_ms - warned_ms > wait_ms else None
        while (picked := part.pick()) is not None:
            self.listed[picked.id] = now_ms
            yield None
