"""Runs a notifier: reads the log once for each target, looks at pools and nodes, sends messages, and stores the state."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import anyio

from headrace.client import Client
from headrace.client.finished import LogPosition
from headrace.runtime.clock import SystemClock
from headrace_cli.notify.conditions import look
from headrace_cli.notify.notifier import Notifier, NotifyState
from headrace_cli.notify.rules import RuleKind, Rules, Target
from headrace_cli.notify.sending import attempt_for
from headrace_cli.outgoing.delivery import Undelivered, deliver
from headrace_cli.outgoing.position_file import PositionFile
from headrace_cli.show.screen import Screen

#: Seconds after which the position is stored even if nothing is to be sent.
_STORE_PERIOD_S: Final = 10.0
#: Longest time in seconds that a message waits for occurrences that follow at once.
_GATHER_S: Final = 0.5


class _Signal:
    """Wakes one task that waits for it."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the task, now or when it waits next."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until `set` is called, or was called since the last wait."""
        await self._event.wait()
        self._event = anyio.Event()


class NotifyService:
    """One run of `headrace notify`."""

    def __init__(self, rules: Rules, file: PositionFile[NotifyState], screen: Screen, interval_s: float) -> None:
        """`interval_s` is the time between two looks at pools and nodes."""
        self._rules = rules
        self._file = file
        self._screen = screen
        self._clock = SystemClock()
        self._interval_s = interval_s
        self._notifier = Notifier(rules, file.read(), self._clock.wall_ms(), int(interval_s * 1000))
        self._stored_at_s = -_STORE_PERIOD_S
        #: Signals for each target: `_more` if something waits to be sent, `_free` if the log may be read further.
        self._more = {name: _Signal() for name in rules.targets}
        self._free = {name: _Signal() for name in rules.targets}

    async def run(self, client: Client) -> None:
        """Notify until cancelled. Raises what the client raises, and OSError if the state cannot be stored."""
        self._store()
        async with anyio.create_task_group() as tasks:
            for target in self._rules.targets.values():
                tasks.start_soon(self._read, client, target.name)
                tasks.start_soon(self._send, target)
            if any(rule.when is not RuleKind.OPERATION_ENDED for rule in self._rules.rules):
                tasks.start_soon(self._look, client)

    async def _read(self, client: Client, target: str) -> None:
        own = self._notifier.state.targets[target]
        position = LogPosition.parse(own.position, str(self._file.path))
        async with aclosing(client.finished.pages(position, since_ms=own.since_ms, follow=True)) as pages:
            async for page in pages:
                has_more = self._notifier.on_ended(target, page.operations, page.position, page.lost)
                if page.operations or page.lost or self._is_time_to_store():
                    self._store()
                if has_more:
                    self._more[target].set()
                while self._notifier.is_full(target):
                    await self._free[target].wait()

    async def _look(self, client: Client) -> None:
        rules = [rule for rule in self._rules.rules if rule.when is not RuleKind.OPERATION_ENDED]
        while True:
            before = dict(self._notifier.state.conditions)
            has_more = await look(client, rules, self._notifier, self._clock.wall_ms())
            is_changed = has_more or before.keys() != self._notifier.state.conditions.keys()
            if is_changed or self._is_time_to_store():
                self._store()
            for signal in self._more.values() if has_more else ():
                signal.set()
            await anyio.sleep(self._interval_s)

    async def _send(self, target: Target) -> None:
        while True:
            message = self._notifier.next_message(target.name)
            if message is None:
                await self._more[target.name].wait()
                await anyio.sleep(min(_GATHER_S, target.pause_ms / 1000))
                continue
            self._store()
            self._free[target.name].set()

            def say(error: Undelivered, pause_s: float) -> None:
                self._screen.say(f"{target.name} did not accept a message: {error}; next attempt in {pause_s:.1f} s")

            failure = await deliver(attempt_for(target, message), say, give_up_after_s=target.give_up_after_ms / 1000)
            if failure is None:
                self._notifier.on_delivered(target.name)
            else:
                self._screen.say(f"a message to {target.name} is dropped: {failure}: {message.title}", style="red")
                self._notifier.on_given_up(target.name)
            self._store()
            await anyio.sleep(target.pause_ms / 1000)

    def _is_time_to_store(self) -> bool:
        return self._clock.steady_s() - self._stored_at_s >= _STORE_PERIOD_S

    def _store(self) -> None:
        self._stored_at_s = self._clock.steady_s()
        self._file.write(self._notifier.state)
