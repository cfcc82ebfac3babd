"""The shell of integral: takes its term, restores what was saved, applies advances one at a time, confirms what is saved."""

from __future__ import annotations

import anyio
import msgspec

from headrace.bus import BusError
from headrace.ids import TreeName, tree_name
from headrace.obs.logging import logger
from headrace.runtime.handlers import Caller, CallerKind
from headrace.runtime.service import Deposed, Runtime
from headrace.runtime.terms import take_term
from headrace.wire import subjects
from headrace.wire.integral import Advance, GetVolumes
from headrace.wire.refusals import BadRequest, NotFound, NotReady
from headrace.wire.version import Term
from headrace_integral.engine import Answer, IntegralEngine
from headrace_integral.settings import IntegralSettings
from headrace_integral.store import NotSaved, UnreadableVolumes, VolumeStore

__all__ = ["serve"]


async def serve(runtime: Runtime[IntegralSettings]) -> None:
    """Runs the service until it is asked to stop. Raises `Deposed` when another process has taken over."""
    tree = tree_name(runtime.settings.tree)
    term = await take_term(runtime.bus, f"integral.{tree}")
    runtime.terms.see(f"integral.{tree}", term)
    store = VolumeStore(await runtime.bus.key_value(subjects.VOLUMES_BUCKET), tree)
    shell = _Shell(runtime, tree, term, store)
    await shell.restore()
    border = runtime.border
    waiting = runtime.settings.waiting_advances
    advances = await border.serve(
        subjects.integral_advance(tree),
        Advance,
        CallerKind.SERVICE,
        shell.advance,
        concurrency=1,
        pending=waiting,
        statistics=shell.statistics,
    )
    volumes = await border.serve(subjects.integral_volumes(tree), GetVolumes, CallerKind.SERVICE, shell.get)
    logger().info("integral serves", tree=tree, term=term, version=str(shell.engine.record.version))
    async with anyio.create_task_group() as waits:
        waits.start_soon(_first, runtime.stopping, waits.cancel_scope)
        waits.start_soon(_first, shell.deposed, waits.cancel_scope)
    await advances.close()
    await volumes.close()
    if shell.deposed.is_set():
        raise Deposed


async def _first(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class _Shell:
    def __init__(self, runtime: Runtime[IntegralSettings], tree: TreeName, term: Term, store: VolumeStore) -> None:
        self._runtime = runtime
        self._tree = tree
        self._term = term
        self._store = store
        self._turn = anyio.Lock()
        self.engine = IntegralEngine(tree, term)
        self.deposed = anyio.Event()
        self.not_saved = 0

    def statistics(self) -> dict[str, int]:
        """Of the engine, and how often volumes could not be saved."""
        return {**self.engine.statistics(), "not_saved": self.not_saved}

    async def restore(self) -> None:
        """Puts what is stored in place of what is in memory."""
        record = await self._store.load()
        if record is not None and record.writer > self._term:
            self.deposed.set()
            raise Deposed
        self.engine.on_restored(record)

    async def advance(self, request: Advance, caller: Caller) -> msgspec.Struct:
        """One advance: decided, saved, confirmed."""
        async with self._turn:
            if not self._store.certain:
                try:
                    await self.restore()
                except (BusError, UnreadableVolumes, Deposed) as error:
                    return NotReady(f"the saved volumes cannot be read: {error}")
            broken = self.engine.broken
            decision = self.engine.on_advance(request)
            if self.engine.broken > broken:
                logger().error(
                    "volumes out of bounds", tree=self._tree, version=str(request.version), broken=self.engine.broken
                )
            if not (isinstance(decision, Answer) and isinstance(decision.answer, BadRequest | NotFound)):
                self._runtime.terms.see(f"fair_share.{self._tree}", request.version.term)
            if isinstance(decision, Answer):
                logger().debug("advance answered", version=str(request.version), answer=type(decision.answer).__name__)
                return decision.answer
            try:
                await self._store.save(decision.record)
            except NotSaved as error:
                self.not_saved += 1
                logger().warning("volumes not saved", tree=self._tree, version=str(request.version), error=str(error))
                return NotReady(f"volumes are not saved: {error}")
            logger().debug("advance applied", tree=self._tree, version=str(request.version), dt_us=request.dt_us)
            return self.engine.on_saved(decision.record)

    async def get(self, request: GetVolumes, caller: Caller) -> msgspec.Struct:
        """The volumes as they are."""
        return self.engine.on_get(request)
