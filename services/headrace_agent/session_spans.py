"""Spans: the form in which the sessions of people with this node's jobs are reported to admission and recorded there.

Pure. A span covers one or more sessions of one person with one run of a job. The person's first span with the run ends as soon as none of
its sessions is open. If a further session begins while that span is remembered, it begins a new span, which lasts at least `_CLOSE_NS`. All
sessions that begin before the end of a span belong to the span. So a person who runs commands all the time causes only one span a minute
for each job.

A new agent process does not know the spans of the agent process before it. Sessions that go on begin new spans with their next turns, which
come every few seconds. Admission then records that it is not known when the former spans ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from itertools import chain, islice
from typing import Final

import msgspec

from headrace.ids import AllocationId
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import MOST_SESSION_SPANS, JobKey, SessionSpan
from headrace.wire.refusals import Busy
from headrace.wire.sessions import SessionTurn

#: Time for which an ended span is remembered. A span that begins while an earlier span is remembered lasts at least as long.
_CLOSE_NS: Final = 60_000 * NS_PER_MS
#: Time that the agent waits after the grace time of a session without turns, before the session counts as ended here. The runner ends such
#: a session when the grace time is over.
_MARGIN_NS: Final = 5_000 * NS_PER_MS


class AnsweredTurn(msgspec.Struct, frozen=True):
    """A turn (a request) of a person's session that the runner answered."""

    turn: SessionTurn
    user: str
    #: True if the session is over: its process has ended, or the person hung up with this turn.
    is_over: bool


class _Span:
    """One span. Times are CLOCK_BOOTTIME in nanoseconds, except in `began`."""

    def __init__(self, began: SessionSpan, ends_from_ns: int) -> None:
        self.began = began
        #: Earliest time at which the span may end.
        self.ends_from_ns = ends_from_ns
        #: Time of the last turn of each open session, by the name of the session.
        self.open: dict[str, int] = {}
        self.sessions = 0
        #: Time at which the last open session of the span ended, and the same time as Unix time in milliseconds.
        self.left_ns = self.left_at_ms = 0
        self.is_begin_recorded = self.is_end_recorded = False
        #: True once the end of the span was noticed.
        self.is_over = False

    @property
    def ended(self) -> SessionSpan:
        span = self.began
        return SessionSpan(span.job, span.allocation, span.user, span.began_at_ms, self.left_at_ms, self.sessions)

    def close(self, session: str, now: Moment) -> None:
        del self.open[session]
        if not self.open:
            self.left_ns, self.left_at_ms = now.steady_ns, max(now.wall_ms, self.began.began_at_ms, 1)

    def notice_end(self, now_ns: int) -> bool:
        """Note the end of the span if no session is open and it may end. Return True if its end was noted by this call."""
        was_over, self.is_over = self.is_over, self.is_over or (not self.open and now_ns >= self.ends_from_ns)
        return self.is_over and not was_over


class SessionSpans:
    """The spans of one agent process: those that are open, not recorded yet, or remembered."""

    def __init__(self, grace_ms: int) -> None:
        self._silence_ns = grace_ms * NS_PER_MS + _MARGIN_NS
        self._spans: dict[tuple[JobKey, str], list[_Span]] = {}
        #: Spans of the open sessions, by the name of the session.
        self._open: dict[str, _Span] = {}
        #: Names of the sessions that ended last, so that an answer to a late turn does not begin such a session again.
        self._gone: deque[str] = deque(maxlen=MOST_SESSION_SPANS)

    def knows(self, session: str) -> bool:
        return session in self._open or session in self._gone

    def refusal(self) -> Busy | None:
        """Return the refusal of a new session if as many spans are kept as a heartbeat can report, else None."""
        count = sum(len(each) for each in self._spans.values())
        if count < MOST_SESSION_SPANS:
            return None
        why = f"this node keeps {count} records of sessions that are open, not recorded yet, or of the last minute"
        return Busy(count, 0, why)

    def on_begun(self, session: str, job: JobKey, allocation: AllocationId, user: str, now: Moment) -> bool:
        """Record that a session began. Return True if a span began with the session."""
        spans = self._spans.setdefault((job, user), [])
        is_new = not spans or spans[-1].is_over
        if is_new:
            began_at_ms = max([now.wall_ms, *(each.began.began_at_ms + 1 for each in spans)])
            ends_from_ns = now.steady_ns + _CLOSE_NS if spans else 0
            spans.append(_Span(SessionSpan(job, allocation, user, began_at_ms), ends_from_ns))
        spans[-1].sessions += 1
        self._open[session] = spans[-1]
        spans[-1].open[session] = now.steady_ns
        return is_new

    def on_turn(self, session: str, now: Moment, *, is_over: bool) -> bool:
        """Record that a turn of a known session was answered. Return True if the session's span has ended with this turn."""
        span = self._open.get(session)
        if span is None:
            return False
        span.open[session] = now.steady_ns
        if is_over:
            self._close(span, session, now)
        return span.notice_end(now.steady_ns)

    def _close(self, span: _Span, session: str, now: Moment) -> None:
        span.close(session, now)
        del self._open[session]
        self._gone.append(session)

    def on_time(self, jobs: Container[JobKey], now: Moment) -> bool:
        """End the sessions whose person sends no turns any more, and the sessions with jobs that have ended. Drop spans that need not be
        remembered.

        Return True if a span ended.
        """
        has_ended = False
        for (job, user), spans in list(self._spans.items()):
            for span in spans:
                for session, last_ns in list(span.open.items()):
                    if job not in jobs or now.steady_ns >= last_ns + self._silence_ns:
                        self._close(span, session, now)
                if job not in jobs:
                    span.ends_from_ns = 0
                has_ended |= span.notice_end(now.steady_ns)
            kept = [each for each in spans if not _may_drop(each, now.steady_ns)]
            if kept:
                self._spans[job, user] = kept
            else:
                del self._spans[job, user]
        return has_ended

    def next_ns(self) -> int | None:
        """Return the next time at which a span may end or be dropped, or None."""
        due: list[int] = []
        for span in chain.from_iterable(self._spans.values()):
            if span.open:
                due += [last_ns + self._silence_ns for last_ns in span.open.values()]
            elif not span.is_over:
                due.append(span.ends_from_ns)
            elif span.is_end_recorded:
                due.append(span.left_ns + _CLOSE_NS)
        return min(due, default=None)

    def report(self) -> list[SessionSpan]:
        """Return the spans to report. The beginning of a span is reported until admission has recorded it. Once the span has ended, its
        end is reported until it is recorded too.

        A person's next span with the same run waits until then. Admission would otherwise end the earlier span at an unknown time.
        """
        told = (_unrecorded(spans) for spans in self._spans.values())
        return list(islice((each for each in told if each is not None), MOST_SESSION_SPANS))

    def forget(self, recorded: list[SessionSpan]) -> bool:
        """Note which beginnings and ends of spans admission has recorded. Return True if there is more to report about these runs."""
        for span in recorded:
            for each in self._spans.get((span.job, span.user), []):
                if each.began.began_at_ms == span.began_at_ms:
                    each.is_begin_recorded = True
                    each.is_end_recorded = each.is_end_recorded or span.ended_at_ms > 0
        runs = {(span.job, span.user) for span in recorded}
        return any(_unrecorded(self._spans.get(each, [])) is not None for each in runs)


def _unrecorded(spans: list[_Span]) -> SessionSpan | None:
    """Return what is to be reported next of one person's spans with one run of a job, or None."""
    for span in spans:
        if not span.is_begin_recorded:
            return span.began
        if span.is_over and not span.is_end_recorded:
            return span.ended
    return None


def _may_drop(span: _Span, now_ns: int) -> bool:
    return span.is_end_recorded and now_ns >= span.left_ns + _CLOSE_NS
