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
import math
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
        return self._number


class _Handle:
    """What asyncio's own handles are to tasks and timers, without what only a real loop needs: half of all work is to make them."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "when_s")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context, when_s: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False
        #: NaN for one that is no timer.
        self.when_s = when_s

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s

    @property
    def process(self) -> str:
        """The process that it belongs to."""
        return self.context.get(PROCESS, "")


def _nothing() -> None:
    pass


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
        self._frozen: dict[str, list[_Handle]] = {}
        #: Processes of either kind: of these nothing may be scheduled.
        self._held_back: set[str] = set()
        #: All tasks ever made; the coroutines of killed processes must not be collected, which would run their `finally` blocks.
        self._tasks: list[_OrderedTask] = []
        #: When, which of several at that time, and what.
        self._timers: list[tuple[float, int, _Handle]] = []
        self._numbers = itertools.count()
        #: Errors of callbacks that nobody awaits.
        self.unheard: list[Exception] = []
        super().__init__(_NoDescriptors())
        self._ready_handles: deque[_Handle] = self._ready  # type: ignore[attr-defined]
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
        self._held_back.add(process)
        for handle in [*self._take_out(process), *self._frozen.pop(process, [])]:
            handle.cancel()

    def freeze(self, process: str) -> None:
        """Nothing of the process runs until it is thawed; its timers go on."""
        if process not in self._killed and process not in self._frozen:
            self._frozen[process] = self._take_out(process)
            self._held_back.add(process)

    def thaw(self, process: str) -> None:
        """Everything that the process missed runs now."""
        if process in self._frozen:
            self._held_back.discard(process)
        for handle in self._frozen.pop(process, []):
            if handle.is_cancelled:
                continue
            if math.isnan(handle.when_s):
                self._ready_handles.append(handle)
            else:
                heapq.heappush(self._timers, (handle.when_s, next(self._numbers), handle))

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

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = _Handle(callback, args, context, math.nan)
        if context.get(PROCESS, "") in self._held_back:
            self._hold_back(handle)
        else:
            self._ready_handles.append(handle)
        return handle

    # Only the end of an asynchronous generator comes this way.
    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        if context is None:
            context = contextvars.copy_context()
        handle = _Handle(callback, args, context, when)
        if context.get(PROCESS, "") in self._held_back:
            self._hold_back(handle)
        else:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _hold_back(self, handle: _Handle) -> None:
        """Cancels the handle of a killed process, keeps that of a frozen one."""
        if handle.process in self._killed:
            handle.cancel()
        else:
            self._frozen[handle.process].append(handle)

    def _take_out(self, process: str) -> list[_Handle]:
        """Removes all that is scheduled of a process; returns it in the order in which it would have run."""
        own = [handle for handle in self._ready_handles if handle.process == process]
        others = [handle for handle in self._ready_handles if handle.process != process]
        self._ready_handles.clear()
        self._ready_handles.extend(others)
        timers = sorted(entry for entry in self._timers if entry[2].process == process)
        self._timers = [entry for entry in self._timers if entry[2].process != process]
        heapq.heapify(self._timers)
        return [*own, *(handle for _, _, handle in timers)]

    def _run_once(self) -> None:
        """Runs rounds until the loop is told to stop; asyncio's own loop around it costs as much as a round."""
        ready, heappop = self._ready_handles, heapq.heappop
        while not self._stopping:  # type: ignore[attr-defined]
            # A process that is killed or frozen has the heap made anew.
            timers = self._timers
            while timers and timers[0][2].is_cancelled:
                heappop(timers)
            if ready:
                self._rounds_at_once += 1
                if self._rounds_at_once > _MOST_ROUNDS_AT_ONCE:
                    raise TurnsForEver(", ".join(sorted({repr(each.callback)[:300] for each in ready})[:5]))
            elif timers:
                self._now_s = max(self._now_s, timers[0][0])
                self._rounds_at_once = 0
            else:
                raise NothingWillHappen
            until_s = self._now_s + _RESOLUTION_S
            while timers and timers[0][0] <= until_s:
                ready.append(heappop(timers)[2])
            if len(ready) > 1:
                shuffled = list(ready)
                self.random.shuffle(shuffled)
                ready.clear()
                ready.extend(shuffled)
            self._run_some(len(ready))

    def _run_some(self, many: int) -> None:
        """Runs so many of what is ready, or fewer: a callback may take others out."""
        ready = self._ready_handles
        while many and ready:
            many -= 1
            handle = ready.popleft()
            if not handle.is_cancelled:
                try:
                    handle.context.run(handle.callback, *handle.args)
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
