"""Sessions at a real runner: terminals of jobs, commands beside jobs, and turns that are late, forged or too many."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from headrace.wire.heartbeat import JobResult
from headrace.wire.refusals import Busy, NotFound, Refusal, WrongState, decode_answer
from headrace.wire.sessions import MOST_SESSION_BYTES, SessionCommand, SessionState, SessionTurn, TerminalSize
from headrace_agent.runner.protocol import Ping, Pong, Turn, Turned
from headrace_agent.runner.sessions.relay import _MOST_COMMANDS_OF_A_PERSON, _MOST_ENDED
from tests.unit.runner.builders import OPERATION, a_run
from tests.unit.runner.harness import PATIENCE_S, Agent, ARunner, gone, runner

__all__ = ["runner"]

#: Turns of 3 s without any output after which a test gives up.
_MOST_SILENT_TURNS = 5
_numbers = itertools.count(1)


class Person:
    """One person's session through an agent. Every turn has a number of its own, as those of a client."""

    def __init__(self, agent: Agent, name: str = "ann", session: str = "", index: int = 0) -> None:
        self.agent = agent
        self.name = name
        self.session = session or f"{next(_numbers):032x}"
        self.index = index
        self.stdout = b""
        self.stderr = b""
        self.accepted = 0

    def turn(self, **fields: object) -> SessionState | Refusal:
        number = next(_numbers)
        values = {"input_offset": self.accepted, "stdout_offset": len(self.stdout), "stderr_offset": len(self.stderr)}
        turn = SessionTurn(self.session, OPERATION, self.index, number, **{**values, **fields})  # type: ignore[arg-type]
        self.agent.say(Turn(number, self.name, turn))
        answer = self.agent.hear(Turned, lambda turned: turned.number == number).answer
        return decode_answer(answer, SessionState)

    def begin(self, *argv: str, terminal: bool = False, **fields: object) -> Person:
        command = SessionCommand(list(argv), terminal, "vt100" if terminal else "") if argv else None
        assert isinstance(self.turn(command=command, **fields), SessionState)
        return self

    def write(self, data: bytes, *, ended: bool = False) -> None:
        state = self.turn(input=data, input_ended=ended)
        assert isinstance(state, SessionState)
        self.accepted = state.input_offset

    def read(self) -> SessionState:
        state = self.turn(wait_ms=3_000)
        assert isinstance(state, SessionState)
        assert (state.stdout_offset, state.stderr_offset) == (len(self.stdout), len(self.stderr))
        self.stdout += state.stdout
        self.stderr += state.stderr
        return state

    def read_until(self, is_enough: Callable[[], bool]) -> None:
        silent = 0
        while not is_enough():
            state = self.read()
            silent = 0 if state.stdout or state.stderr else silent + 1
            assert not state.ended, (self.stdout, self.stderr)
            assert silent < _MOST_SILENT_TURNS, (self.stdout, self.stderr)

    def end(self) -> SessionState:
        silent = 0
        while not (state := self.read()).ended:
            silent = 0 if state.stdout or state.stderr else silent + 1
            assert silent < _MOST_SILENT_TURNS, (self.stdout, self.stderr)
        return state


def test_a_command_beside_a_job_has_its_environment_and_folder_and_its_own_streams_and_status(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000", environment={"PATH": os.environ["PATH"], "OWN": "of the job"})
    script = "read line; echo $OWN $HEADRACE_JOB $line; pwd; echo oops >&2; exit 7"
    ann = Person(agent).begin("sh", "-c", script)
    agent.say(Ping())
    assert agent.hear(Pong).sessions == 1
    ann.write(b"hello\n", ended=True)

    end = ann.end()
    agent.say(Ping())
    assert agent.hear(Pong).sessions == 0

    assert (end.exit_code, end.signal, ann.stderr) == (7, None, b"oops\n")
    said, folder = ann.stdout.decode().splitlines()
    assert said == f"of the job {OPERATION}.0.1 hello"
    assert folder.startswith(f"{runner.state}/scratch/")


def test_a_job_with_a_terminal_talks_with_the_person_who_connects(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sh", "-c", "stty -echo; read line; stty size; tty </dev/tty; echo got $line; exit 3", terminal=True)
    ann = Person(agent).begin(size=TerminalSize(33, 99))
    ann.write(b"word\n")

    end = ann.end()

    assert b"33 99\r\n" in ann.stdout
    assert b"/dev/tty\r\n" in ann.stdout
    assert b"got word\r\n" in ann.stdout
    assert (end.exit_code, ann.stderr) == (3, b"")
    assert agent.end_of(0).exit_code == 3
    assert runner.log(0) == b""


def test_a_terminal_in_a_command_beside_a_job_is_its_controlling_terminal(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("sh", "-c", "trap 'exit 9' INT; echo $TERM; while :; do sleep 0.01; done", terminal=True)
    ann.read_until(lambda: b"vt100" in ann.stdout)

    ann.write(b"\x03")

    assert ann.end().exit_code == 9


def test_a_later_size_is_told_and_an_older_one_is_not(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sh", "-c", "stty -echo; while read line; do stty size; done", terminal=True)
    ann = Person(agent).begin()
    ann.turn(size=TerminalSize(10, 20))
    ann.write(b"\n")
    ann.read_until(lambda: ann.stdout.endswith(b"10 20\r\n"))

    old = SessionTurn(ann.session, OPERATION, 0, 1, size=TerminalSize(7, 8))
    agent.say(Turn(next(_numbers), "ann", old))
    ann.write(b"\n")
    ann.read_until(lambda: ann.stdout.count(b"10 20") + ann.stdout.count(b"7 8") >= 2)

    assert ann.stdout.endswith(b"10 20\r\n10 20\r\n")


def test_input_that_arrives_twice_late_or_with_a_gap_reaches_the_command_once(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("cat")
    for offset, data in ((0, b"abc"), (0, b"abc"), (1, b"bcde"), (99, b"zz"), (2, b"c"), (5, b"f")):
        state = ann.turn(input_offset=offset, input=data)
    assert isinstance(state, SessionState)
    assert state.input_offset == 6

    ann.turn(input_offset=6, input_ended=True)
    ann.turn(input_offset=6, input=b"after the end")

    assert ann.end().exit_code == 0
    assert ann.stdout == b"abcdef"


def test_an_answer_that_was_lost_is_given_again(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("echo", "once")
    while not isinstance(lost := ann.turn(wait_ms=3_000), SessionState) or not lost.stdout:
        pass

    assert ann.end().exit_code == 0
    assert ann.stdout == b"once\n"


def test_a_session_that_is_over_is_not_begun_again_by_a_late_turn(runner: ARunner, tmp_path: object) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("sh", "-c", "echo started")
    ann.end()
    ann.turn(hang_up=True)

    late = ann.turn(command=SessionCommand(["sh", "-c", "echo started"]))

    assert isinstance(late, NotFound)
    assert len(runner.events("session began")) == 1


def test_a_turn_of_another_person_or_about_another_job_changes_nothing(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("cat")

    thief = Person(agent, "bob", ann.session)
    assert isinstance(thief.turn(input=b"rm -r\n", wait_ms=0), NotFound)
    assert isinstance(thief.turn(hang_up=True), NotFound)
    assert isinstance(Person(agent, "ann", ann.session, index=1).turn(input=b"x"), NotFound)

    ann.write(b"mine", ended=True)
    ann.end()
    assert ann.stdout == b"mine"


def test_the_terminal_of_a_job_belongs_to_the_first_session_that_connects(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "cat", terminal=True)
    Person(agent).begin()

    assert isinstance(Person(agent).turn(), WrongState)
    assert isinstance(Person(agent, index=1).turn(), NotFound)


def test_a_command_needs_a_job_that_runs(runner: ARunner) -> None:
    agent = runner.start()
    agent.sh(0, "true")

    assert isinstance(Person(agent).turn(command=SessionCommand(["true"])), WrongState)


def test_a_command_that_cannot_start_says_why(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")

    end = Person(agent).begin("no-such-program").end()

    assert end.exit_code == 127
    assert end.reason.startswith("not started: no-such-program: no such command in PATH=")


def test_a_flood_waits_for_its_reader_and_loses_nothing(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("seq", "1", "100000")
    bob = Person(agent, "bob").begin("yes")
    for _ in range(3):
        state = bob.turn(wait_ms=3_000)
        assert isinstance(state, SessionState)
        assert len(state.stdout) <= MOST_SESSION_BYTES

    assert ann.end().exit_code == 0

    assert ann.stdout == b"".join(b"%d\n" % number for number in range(1, 100_001))


def test_input_that_the_command_does_not_read_is_not_accepted_without_bound(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("sleep", "1000")
    before = -1
    while ann.accepted > before:
        before = ann.accepted
        ann.write(bytes(MOST_SESSION_BYTES))

    assert ann.accepted < 8 * MOST_SESSION_BYTES


def test_a_job_whose_terminal_no_person_connects_to_fails_after_the_grace_time(runner: ARunner) -> None:
    agent = runner.start("--session-grace-ms", "1000")
    started = agent.run(0, "sh", "-c", "while :; do sleep 0.1; done", terminal=True)

    end = agent.end_of(0)

    assert (end.result, end.reason) == (JobResult.FAILED, "no person is connected to its terminal any more")
    assert gone(started.pid)


def test_the_terminal_of_a_job_that_has_ended_is_closed_after_the_grace_time_even_if_its_output_was_not_read(
    runner: ARunner,
) -> None:
    def has_terminal() -> bool:
        folder = f"/proc/{runner.pid}/fd"
        with suppress(FileNotFoundError):  # one is being closed
            return any(os.readlink(f"{folder}/{fd}") == "/dev/ptmx" for fd in os.listdir(folder))
        return True

    agent = runner.start("--session-grace-ms", "1000")
    agent.say(a_run(0, "sh", "-c", f"head -c {MOST_SESSION_BYTES + 500} /dev/zero | tr '\\0' x", terminal=True))
    assert agent.end_of(0).result is JobResult.COMPLETED
    assert has_terminal()

    deadline_s = time.monotonic() + PATIENCE_S
    while has_terminal():
        assert time.monotonic() < deadline_s


def test_a_command_whose_person_is_gone_is_ended_after_the_grace_time_and_the_job_goes_on(runner: ARunner) -> None:
    agent = runner.start("--session-grace-ms", "1000")
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("sh", "-c", "echo $$; exec sleep 1000")
    ann.read_until(lambda: ann.stdout.endswith(b"\n"))

    assert gone(int(ann.stdout))
    assert agent.hello().running


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_ends_when_its_person_leaves(runner: ARunner, terminal: bool) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("sh", "-c", "echo $$; exec sleep 1000", terminal=terminal)
    ann.read_until(lambda: ann.stdout.endswith(b"\n"))

    ann.turn(hang_up=True)

    assert gone(int(ann.stdout))


def test_a_command_ends_with_its_job(runner: ARunner) -> None:
    agent = runner.start()
    started = agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("sh", "-c", "echo $$; exec sleep 1000")
    ann.read_until(lambda: ann.stdout.endswith(b"\n"))
    os.kill(started.pid, 15)

    agent.end_of(0)

    assert gone(int(ann.stdout))
    assert ann.end().signal == 9


def test_a_person_has_a_bounded_number_of_commands(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    for _ in range(_MOST_COMMANDS_OF_A_PERSON):
        Person(agent).begin("sleep", "1000")

    assert isinstance(Person(agent).turn(command=SessionCommand(["true"])), Busy)
    assert Person(agent, "bob").begin("true").end().exit_code == 0


def test_a_session_goes_on_when_its_agent_is_replaced(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sh", "-c", "stty -echo; read one; echo $one; read two; echo $two", terminal=True)
    ann = Person(agent).begin()
    ann.write(b"first\n")
    ann.read_until(lambda: b"first" in ann.stdout)

    waiting = SessionTurn(ann.session, OPERATION, 0, next(_numbers), stdout_offset=len(ann.stdout), wait_ms=3_000)
    agent.say(Turn(next(_numbers), "ann", waiting))
    ann.turn()
    ann.agent = runner.agent()
    ann.agent.hello()
    ann.write(b"second\n")

    assert ann.end().exit_code == 0
    assert b"second" in ann.stdout
    # A new agent numbers its turns anew, so it must get no answer to a turn of the agent before.
    assert not [message for message in ann.agent._heard if isinstance(message, Turned)]


def test_a_command_whose_output_was_not_received_counts_until_it_is(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    idle = len(os.listdir(f"/proc/{runner.pid}/fd"))
    people = [Person(agent) for _ in range(_MOST_COMMANDS_OF_A_PERSON)]
    for each in people:
        # One half is kept by the runner, and the other half stays in the pipe.
        each.begin("head", "-c", str(2 * MOST_SESSION_BYTES), "/dev/zero")
    deadline = time.monotonic() + PATIENCE_S
    while runner.log_file.read_text().count("session ended") < len(people):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    assert isinstance(Person(agent).turn(command=SessionCommand(["true"])), Busy)

    for each in people:
        each.end()
    Person(agent).begin("true").end()
    assert len(os.listdir(f"/proc/{runner.pid}/fd")) == idle


def test_results_of_one_person_are_kept_whatever_sessions_another_person_has(runner: ARunner) -> None:
    agent = runner.start()
    agent.run(0, "sleep", "1000")
    ann = Person(agent).begin("sh", "-c", "exit 5")

    for _ in range(_MOST_ENDED + 10):
        Person(agent, "ben").begin("no\0program")

    assert ann.end().exit_code == 5
