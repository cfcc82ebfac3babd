"""The part of a log that a replay needs, so that an hour of a long log can be replayed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import OperationId
from headrace.wire.log import Event, JobsEnded, OperationStarted, OperationStateChanged, concerned
from headrace.wire.operations import FINAL_STATES
from headrace.wire.replay import ToldEntry

#: Upper bound of the runs of jobs in a replay. Each takes about a kilobyte of memory, and a millisecond in each of the two replays.
MOST_RUNS: Final = 300_000


class NeededLog:
    """Entries of the log, the oldest first, without operations that ended before the period or began after it."""

    def __init__(self, since_ms: int, until_ms: int, most_runs: int = MOST_RUNS) -> None:
        self.entries: list[ToldEntry] = []
        #: Time of the oldest event, in Unix milliseconds; 0: there is none.
        self.first_ms = 0
        #: True if something happened within the period.
        self.tells = False
        self._since_ms, self._until_ms = since_ms, until_ms
        self._most_runs = most_runs
        self._runs = 0
        self._begun: set[OperationId] = set()
        self._unneeded: set[OperationId] = set()

    def add(self, entries: Sequence[ToldEntry]) -> None:
        """Add the next entries. Raises `BadInput` if the needed part has more runs of jobs than can be replayed."""
        for entry in entries:
            for event in entry.events:
                self._look_at(event)
        self.entries += entries
        self._runs += _runs_in(entries)
        if self._runs > self._most_runs:
            self.cut()
        if self._runs > self._most_runs:
            raise BadInput.because(
                "--since", f"the period has more than {self._most_runs} runs of jobs. Choose a shorter period"
            )

    def cut(self) -> None:
        """Drop the events that are not needed."""
        self.entries = [
            msgspec.structs.replace(entry, events=[each for each in entry.events if self._is_needed(each)])
            for entry in self.entries
        ]
        self._runs = _runs_in(self.entries)

    def _is_needed(self, event: Event) -> bool:
        return concerned(event) not in self._unneeded

    def _look_at(self, event: Event) -> None:
        at_ms: int = getattr(event, "at_ms", 0)
        if at_ms:
            self.first_ms = min(self.first_ms or at_ms, at_ms)
            self.tells |= self._since_ms <= at_ms <= self._until_ms
        match event:
            case OperationStateChanged(state=state) if state in FINAL_STATES and at_ms < self._since_ms:
                self._unneeded.add(event.operation)
            case OperationStarted(operation=operation) if operation not in self._begun:
                self._begun.add(operation)
                if at_ms > self._until_ms:
                    self._unneeded.add(operation)


def _runs_in(entries: Iterable[ToldEntry]) -> int:
    return sum(len(event.ends) for entry in entries for event in entry.events if isinstance(event, JobsEnded))
