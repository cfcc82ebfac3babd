"""One `pool import`: the changes that a file makes, and the question before the import removes much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.client import Client
from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.wire.pool_changes import PoolChange, PoolPlan, Remove
from headrace.wire.pools import PoolList
from headrace.wire.what_if import WhatIfAnswer
from headrace_cli.pools.files import configured
from headrace_cli.pools.imports import Import

#: Most pools that a question names.
_MOST_NAMED = 10


class Removals(NamedTuple):
    """The pools that an import removes."""

    removed: list[PoolName]
    #: Number of configured pools in the tree.
    configured: int
    #: Operations in each removed pool that is in use, including operations in the ephemeral pools that it made for users.
    in_use: dict[PoolName, int]

    @staticmethod
    def of(changes: Sequence[PoolChange], listed: PoolList) -> Removals:
        """Return the removals among the changes of a tree."""
        removed = [change.name for change in changes if isinstance(change, Remove)]
        views, counts = {pool.name: pool for pool in listed.pools}, Counter[PoolName]()
        for pool in listed.pools:
            # Operations in a user's ephemeral pool count for the pool that made it.
            home = pool
            while home.ephemeral and home.parent in views:
                home = views[home.parent]
            counts[home.name] += pool.pool_operation_count
        in_use = {name: counts[name] for name in removed if counts[name]}
        return Removals(removed, len(configured(listed)), in_use)

    @property
    def are_asked_about(self) -> bool:
        """True if the import must be confirmed: a removed pool is in use, or more than half of the pools are removed."""
        return bool(self.in_use) or 2 * len(self.removed) > self.configured

    def words(self) -> str:
        """Return the removals in words, for a question or a warning."""
        more = f" and {len(self.removed) - _MOST_NAMED} more" if len(self.removed) > _MOST_NAMED else ""
        said = (
            f"{len(self.removed)} of {self.configured} pools are removed: {', '.join(self.removed[:_MOST_NAMED])}{more}"
        )
        if not self.in_use:
            return said
        count = sum(self.in_use.values())
        operations = "1 operation continues" if count == 1 else f"{count} operations continue"
        return f"{said}; {operations} in ephemeral pools of these names"

    def allowing_use(self, changes: Sequence[PoolChange]) -> list[PoolChange]:
        """Return the changes with permission to remove pools that are in use."""
        return [
            msgspec.structs.replace(change, in_use=True)
            if isinstance(change, Remove) and change.name in self.in_use
            else change
            for change in changes
        ]


class Importing:
    """An import, which may be requested a second time after the user has confirmed it."""

    def __init__(self, file: str, read: Import, *, keep: bool, dry_run: bool, confirmed: bool) -> None:
        self._file, self._read = file, read
        self._keep, self._dry_run = keep, dry_run
        self._confirmed = confirmed
        self._revision: int | None = None
        #: Removals that the user must confirm; None: no confirmation is needed.
        self.asks_about: Removals | None = None

    def confirm(self) -> None:
        """Allow the removals that need a confirmation, provided that the tree has not changed since."""
        self._confirmed, self.asks_about = True, None

    async def ask(self, client: Client) -> PoolPlan | WhatIfAnswer:
        """Make the changes. If they must be confirmed first, only return what they would do. Raises `BadInput`."""
        if self._read.tree and self._read.tree != client.trees.own:
            raise BadInput(f"{self._file}: tree", self._read.tree, f"{client.trees.own}, the tree of this command")
        listed = await client.pools.list()
        self._revision = listed.revision if self._revision is None else self._revision
        changes, warnings = self._read.changes(configured(listed), listed.frame.total, keep=self._keep)
        removals = Removals.of(changes, listed)
        changes = removals.allowing_use(changes)
        if removals.are_asked_about and not self._confirmed:
            if not self._dry_run:
                self.asks_about = removals
            warnings = [*warnings, f"{removals.words()}; confirm this, or add --yes"]
        if self._dry_run or self.asks_about is not None:
            answer = await client.pools.what_if(changes)
            return msgspec.structs.replace(answer, plan=_warned(answer.plan, warnings))
        return _warned(await client.pools.change(changes, expected_revision=self._revision), warnings)


def _warned(plan: PoolPlan, warnings: Sequence[str]) -> PoolPlan:
    return msgspec.structs.replace(plan, warnings=[*warnings, *plan.warnings])
