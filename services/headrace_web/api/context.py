"""The context that every endpoint gets besides its request."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from headrace.client import Client, Unanswered
from headrace.ids import TreeName, tree_name
from headrace_web.api.event_hub import EventHub


class Context(NamedTuple):
    """The connection of the person for whom the service acts, and the events that all readers share."""

    client: Client
    events: EventHub

    async def tree(self, name: str) -> TreeName:
        """Return the tree of this name. If the name is empty, return the tree that the service was started for.

        Raises `Refused` if there is no such tree, and `BadInput`.
        """
        if not name or name == self.client.place.tree:
            return self.client.place.tree
        with suppress(Unanswered):  # other services may know what the request needs
            await self.client.trees.list(tree_name(name))
        return TreeName(name)
