"""Requests to change the configuration: the engine decides, the bucket stores the change, and the client gets its answer when the change is
durable.

A request names a tree, and the fair_share service of this tree answers it; the services of other trees do not answer. If the tree does not
exist, the fair_share services of all trees answer that it does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from headrace.bus import BusError
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.pools import Person, PoolTree
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints
from headrace.runtime.shell import Shell
from headrace.suggestions import near
from headrace.wire import subjects
from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.refusals import NotFound, NotReady, Refusal, WrongState
from headrace.wire.trees import CreateTree, ListTrees, MovePoolToTree, RemoveTree
from headrace_fair_share.configuration.between_trees import move_to_tree
from headrace_fair_share.configuration.change_decisions import Change, pools_of
from headrace_fair_share.configuration.differences import fitting
from headrace_fair_share.configuration.other_trees import OtherTrees
from headrace_fair_share.configuration.persons import sure
from headrace_fair_share.configuration.store import PoolStore
from headrace_fair_share.effects import Effect, WriteTree
from headrace_fair_share.engine import FairShareEngine

_OURSELVES: Final = Person("fair_share", administrator=True)
#: Seconds from the loss of the configuration until it is written again, and between two tries to write it.
_RETRY_S: Final = 0.5

_TreeRequest = ListTrees | CreateTree | RemoveTree


class ConfigurationRequests:
    """Answers requests to change pool trees.

    The engine decides on changes of the tree that this process serves, and `OtherTrees` makes changes of all other trees.
    """

    def __init__(
        self,
        engine: FairShareEngine,
        shell: Shell[Effect],
        store: PoolStore,
        others: OtherTrees,
        person: Callable[[str], Awaitable[Person]],
    ) -> None:
        self._engine = engine
        self._shell = shell
        self._store = store
        self._others = others
        self._person = person

    async def serve(self, endpoints: Endpoints) -> None:
        """Start to answer requests of users."""
        user = CallerKind.USER
        await endpoints.serve(subjects.user("*", "pool.change"), ChangePools, user, self._on_change)
        await endpoints.serve(subjects.user("*", "pool.move_to_tree"), MovePoolToTree, user, self._on_move)
        await endpoints.serve(subjects.user("*", "tree.list"), ListTrees, user, self._on_trees)
        await endpoints.serve(subjects.user("*", "tree.create"), CreateTree, user, self._on_trees)
        await endpoints.serve(subjects.user("*", "tree.remove"), RemoveTree, user, self._on_trees)

    async def keep_stored(self, make_bucket: Callable[[], Awaitable[object]]) -> None:
        """Write the configuration again whenever the bucket has lost it, and retry until that succeeds."""
        while True:
            await self._store.lost.wait()
            self._store.lost = anyio.Event()
            logger().error("the bucket has lost the configuration", tree=self._tree, revision=self._store.revision)
            answer: PoolPlan | Refusal | None = None
            while not isinstance(answer, PoolPlan):
                await anyio.sleep(_RETRY_S)
                try:
                    await make_bucket()
                    answer = await self._changed(ChangePools([], self._tree), _OURSELVES)
                except BusError as error:
                    answer = NotReady(str(error))
            logger().warning("configuration written again", tree=self._tree, revision=self._store.revision)

    def unknown_tree(self, tree: str) -> NotFound | None:
        """Return the answer to a request for a tree that this process does not serve. None if the tree exists, because then its own service
        answers.
        """
        trees = self._store.trees
        return None if tree in trees else NotFound(what="tree", name=tree, near=near(tree, trees) or sorted(trees)[:3])

    @property
    def _tree(self) -> TreeName:
        return self._engine.configuration.pools.name

    async def _on_change(self, request: ChangePools, caller: Caller) -> msgspec.Struct | None:
        asked = request.asked or request.tree
        if asked != self._tree:
            return self.unknown_tree(asked)
        person = await self._person(caller.name)
        if request.tree != self._tree:
            return self._told(request, person, await self._others.change(request, person))
        return self._told(request, person, await self._changed(request, person))

    async def _on_move(self, request: MovePoolToTree, caller: Caller) -> msgspec.Struct | None:
        if request.tree != self._tree:
            return self.unknown_tree(request.tree)
        person, pools = await self._person(caller.name), self._engine.configuration.pools
        if request.to_tree == self._tree:
            return WrongState(
                "tree",
                request.to_tree,
                "the tree that the pool is in",
                "another tree, or a move without --tree to move the pool within its tree",
            )

        async def here(change: ChangePools) -> PoolPlan | Refusal:
            return self._told(change, person, await self._changed(change, person))

        async def there(change: ChangePools) -> PoolPlan | Refusal:
            return self._told(change, person, await self._others.change(change, person))

        return await move_to_tree(request, pools, here, there)

    async def _on_trees(self, request: _TreeRequest, caller: Caller) -> msgspec.Struct | None:
        if request.asked != self._tree:
            return self.unknown_tree(request.asked)
        if isinstance(request, ListTrees):
            return await self._others.list(request.name, request.after)
        person = await self._person(caller.name)
        if isinstance(request, CreateTree):
            answer = sure(await self._others.create(request, person), person)
        else:
            answer = sure(await self._others.remove(request, person), person)
        told = f"revision {answer.revision}" if isinstance(answer, PoolPlan) else answer.text()
        logger().info(
            "tree change decided", verb=type(request).__name__, tree=request.name, user=caller.name, answer=told
        )
        return answer

    async def _changed(self, request: ChangePools, person: Person) -> PoolPlan | Refusal:
        def decide(base: PoolTree | None) -> Change | PoolPlan | Refusal:
            outcome = self._engine.on_change_request(request, person, base, self._shell.now())
            for effect in outcome.effects:
                assert isinstance(effect, WriteTree)
                return effect.change
            assert outcome.answer is not None
            return outcome.answer

        # A request that expects a revision must be decided first in its write: the expected revision is compared with the revision of the
        # stored pools, not with the result of other requests.
        return await self._store.change(decide, is_first=bool(request.expected_revision))

    def _told(self, request: ChangePools, person: Person, answer: PoolPlan | Refusal) -> PoolPlan | Refusal:
        answer = sure(answer, person)
        logger().info(
            "pool change decided",
            verb=type(request).__name__,
            tree=request.tree,
            pools=pools_of(request)[:20],
            user=person.name,
            answer=f"revision {answer.revision}" if isinstance(answer, PoolPlan) else answer.text(),
        )
        return fitting(answer, LARGEST_MESSAGE_BYTES) if isinstance(answer, PoolPlan) else answer
