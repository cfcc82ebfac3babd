"""An event loop in virtual time whose processes can be killed, frozen and thawed at any await.

A simulated process is a value of the context variable `PROCESS`: everything that a process schedules carries it. Whatever belongs
to a killed process never runs again, not even its `finally` blocks; whatever belongs to a frozen one waits until it is thawed. Time
passes only when nothing can run, so hours take as long as what happens in them. One seed decides which of several ready callbacks
runs first; the same seed gives the same course.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

__all__ = ["PROCESS", "NothingWillHappen", "TurnsForEver", "VirtualLoop", "run_virtually"]

T = TypeVar("T")

PROCESS: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("PROCESS", default="")
_RESOLUTION_S: Final = 1e-9


#: Rounds of the loop in one moment of virtual time; a loop in the code under test turns for ever without time passing.
_MOST_ROUNDS_AT_ONCE: Final = 20_000


class NothingWillHappen(RuntimeError):
    """Everybody waits, and no timer is set: the world has come to a stand."""


class TurnsForEver(RuntimeError):
    """Something runs again and again without waiting for anything."""


class _NoDescriptors(selectors.BaseSelector):
    """A selector that owns no descriptors and is never asked."""

    def __init__(self) -> None:
        self._known: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._known[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._known.pop(fileobj)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._known

    def select(self, _timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []


class _OrderedTask(asyncio.Task[Any]):
    """A task whose hash is its number: sets of tasks are then iterated in the same order in every run."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return getattr(self, "_number", 0)

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. `run_virtually` makes one and runs a world on it."""

    def __init__(self, seed: int) -> None:
        self._now_s = 0.0
        self._rounds_at_once = 0
        #: For what happens whatever becomes of any process.
        self.world_context = contextvars.copy_context()
        self.random = random.Random(seed)
        self._killed: set[str] = set()
        #: By process, what it would do.
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        #: All tasks ever made; the coroutines of killed processes must not be collected, which would run their `finally` blocks.
        self._tasks: list[_OrderedTask] = []
        #: When, which of several at that time, and what.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        #: Errors of callbacks that nobody awaits.
        self.unheard: list[Exception] = []
        super().__init__(_NoDescriptors())
        self.set_task_factory(self._new_task)
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        """Time passes while something runs, as if it computed for so long."""
        self._now_s += seconds

    # --- processes ------------------------------------------------------------------------------------------------

    def spawn(self, process: str, run: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Starts a process under a name that no former one had; its task ends with `run`."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(run(), context=context)

    def kill(self, process: str) -> None:
        """Nothing of the process ever runs again."""
        self._killed.add(process)
        for handle in [*self._take_out(process), *self._frozen.pop(process, [])]:
            handle.cancel()

    def freeze(self, process: str) -> None:
        """Nothing of the process runs until it is thawed; its timers go on."""
        if process not in self._killed and process not in self._frozen:
            self._frozen[process] = self._take_out(process)

    def thaw(self, process: str) -> None:
        """Everything that the process missed runs now."""
        for handle in self._frozen.pop(process, []):
            if handle.cancelled():
                continue
            if isinstance(handle, asyncio.TimerHandle):
                heapq.heappush(self._timers, (handle.when(), next(self._numbers), handle))
            else:
                self._ready_handles.append(handle)

    def context_of_this_process(self) -> contextvars.Context:
        """For what others have this process do."""
        return contextvars.copy_context()

    def is_killed(self, process: str) -> bool:
        """True if the process was killed."""
        return process in self._killed

    def is_frozen(self, process: str) -> bool:
        """True while the process is frozen."""
        return process in self._frozen

    # --- scheduling -----------------------------------------------------------------------------------------------

    @property
    def _ready_handles(self) -> deque[asyncio.Handle]:
        return self._ready  # type: ignore[attr-defined, no-any-return]

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not (self._killed or self._frozen) or not self._holds_back(handle):
            self._ready_handles.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not (self._killed or self._frozen) or not self._holds_back(handle):
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _holds_back(self, handle: asyncio.Handle) -> bool:
        """Cancels the handle of a killed process, keeps that of a frozen one; True if it must not run now."""
        process = _process_of(handle)
        if process in self._killed:
            handle.cancel()
            return True
        if process in self._frozen:
            self._frozen[process].append(handle)
            return True
        return False

    def _take_out(self, process: str) -> list[asyncio.Handle]:
        """Removes all that is scheduled of a process; returns it in the order in which it would have run."""
        own = [handle for handle in self._ready_handles if _process_of(handle) == process]
        others = [handle for handle in self._ready_handles if _process_of(handle) != process]
        self._ready_handles.clear()
        self._ready_handles.extend(others)
        timers = sorted(entry for entry in self._timers if _process_of(entry[2]) == process)
        self._timers = [entry for entry in self._timers if _process_of(entry[2]) != process]
        heapq.heapify(self._timers)
        return [*own, *(handle for _, _, handle in timers)]

    def _run_once(self) -> None:
        ready, timers = self._ready_handles, self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if ready:
            self._rounds_at_once += 1
            if self._rounds_at_once > _MOST_ROUNDS_AT_ONCE:
                raise TurnsForEver(", ".join(sorted({repr(handle)[:300] for handle in ready})[:5]))
        elif timers:
            self._now_s = max(self._now_s, timers[0][0])
            self._rounds_at_once = 0
        else:
            raise NothingWillHappen
        while timers and timers[0][0] <= self._now_s + _RESOLUTION_S:
            ready.append(heapq.heappop(timers)[2])
        if len(ready) > 1:
            shuffled = list(ready)
            self.random.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        for _ in range(len(ready)):
            # A callback may take others out.
            if not ready:
                break
            handle: Any = ready.popleft()
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except Exception as error:
                    self.unheard.append(error)

    def _new_task(self, _loop: asyncio.AbstractEventLoop, coroutine: Any, **given: Any) -> asyncio.Task[Any]:
        task = _OrderedTask(coroutine, loop=self, **given)
        self._tasks.append(task)
        return task

    def let_go(self) -> None:
        """Closes every coroutine that never ended. Called once, when nothing that they touch matters any more."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done():
                try:
                    task.get_coro().close()
                except BaseException:
                    continue


def _process_of(handle: asyncio.Handle) -> str:
    return str(handle._context.get(PROCESS, ""))  # type: ignore[attr-defined]


def run_virtually(seed: int, world: Callable[[VirtualLoop], Awaitable[T]]) -> T:
    """Runs a world to its end. Raises what it raises, and `NothingWillHappen` when it can go on no more."""
    _OrderedTask._numbers = itertools.count()
    loop = VirtualLoop(seed)

    async def main() -> T:
        return await world(loop)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.let_go()
        asyncio.set_event_loop(None)
        loop.close()
