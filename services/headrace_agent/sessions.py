"""Passes the turns of people's sessions to the runner, if admission allows the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from headrace.ids import TreeName, operation_id
from headrace.runtime.endpoints import Caller
from headrace.wire.refusals import NotReady, Refusal, WrongState, decode_answer
from headrace.wire.sessions import LONGEST_TURN_MS, SessionState, SessionTurn
from headrace_agent.job_logs.requests import AnswerRate, Readers
from headrace_agent.session_spans import AnsweredTurn
from headrace_agent.to_runner.link import RunnerLink

#: Number of turns that the agent handles at once. One person has at most a quarter of them.
TURNS_AT_ONCE: Final = 256
#: Seconds after which a turn is refused if the runner has not answered it.
_RUNNER_S: Final = LONGEST_TURN_MS / 1000 + 0.5


class JobSessions:
    """Answers turns of sessions. A person may have a session with a job if the person may read its output and the tree allows sessions.

    The runner keeps the sessions. So a session continues with its next turn after a restart of the agent.
    """

    def __init__(
        self,
        readers: Readers,
        rate: AnswerRate,
        runner: RunnerLink,
        tree: TreeName,
        refusal_of: Callable[[str], Refusal | None],
        note: Callable[[AnsweredTurn], None],
    ) -> None:
        """`refusal_of` returns the refusal of a session that cannot be recorded now. `note` records a turn that was answered."""
        self._readers = readers
        self._rate = rate
        self._runner = runner
        self._tree = tree
        self._refusal_of = refusal_of
        self._note = note

    async def on_turn(self, turn: SessionTurn, caller: Caller) -> bytes | Refusal:
        operation_id(turn.operation)
        refusal = await self._readers.refusal_of(turn.operation, caller.name, session_in=self._tree)
        refusal = refusal or self._refusal_of(turn.session)
        if refusal is not None:
            return refusal
        if self._runner.is_too_old_for_sessions:
            expected = "a runner of this release, which starts when all jobs of the node have ended"
            return WrongState("runner", "of this node", "older than its agent", expected)
        answer = None
        with anyio.move_on_after(_RUNNER_S):
            answer = await self._runner.turn(caller.name, turn)
        if answer is None:
            return NotReady("the runner of the node does not answer")
        state = decode_answer(answer, SessionState)
        if isinstance(state, SessionState):
            self._note(AnsweredTurn(turn, caller.name, state.ended or turn.hang_up))
        await self._rate.wait(len(answer))
        return answer
