"""Trees, as a person manages them: list, make, change, remove."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.client.asking import Asker
from headrace.ids import TreeName, tree_name
from headrace.wire.pool_changes import ChangePools, PoolPlan, SetOptions
from headrace.wire.trees import CreateTree, ListTrees, RemoveTree, TreeList, TreeView


class Trees:
    """All pool trees. The fair share service of the client's own tree answers the requests about every tree."""

    def __init__(self, asker: Asker, own: TreeName) -> None:
        self._asker = asker
        self.own = own

    async def list(self, name: str = "") -> TreeList:
        """Return all trees, or one. Raises `Refused`, `Unanswered`."""
        found: list[TreeView] = []
        while True:
            request = ListTrees(name, self.own, found[-1].tree if found else "")
            page = await self._asker.ask("tree.list", request, TreeList)
            found += page.trees
            if name or not page.more:
                return TreeList(found)

    async def create(self, name: str, options: Mapping[str, object], *, dry_run: bool = False) -> PoolPlan:
        """Make a tree without pools. Raises `Refused`, `Unanswered`, `BadInput`."""
        request = CreateTree(tree_name(name), msgspec.json.encode(options), self.own, dry_run)
        return await self._ask("tree.create", request, repeatable=dry_run)

    async def set(self, name: str, options: Mapping[str, object], *, dry_run: bool = False) -> PoolPlan:
        """Change options. None resets an option to its default. Raises `Refused`, `Unanswered`, `BadInput`."""
        change = SetOptions(msgspec.json.encode(options))
        return await self._ask(
            "pool.change", ChangePools([change], tree_name(name), dry_run, self.own), repeatable=True
        )

    async def remove(self, name: str, *, recursive: bool = False, dry_run: bool = False) -> PoolPlan:
        """Remove a tree, with `recursive` its pools too. Raises `Refused`, `Unanswered`, `BadInput`."""
        request = RemoveTree(tree_name(name), recursive, self.own, dry_run)
        return await self._ask("tree.remove", request, repeatable=dry_run)

    async def _ask(self, verb: str, request: msgspec.Struct, *, repeatable: bool) -> PoolPlan:
        return await self._asker.ask(verb, request, PoolPlan, repeatable=repeatable)
