"""`headrace shell` and `headrace op exec`, typed in a terminal of their own at a running Headrace."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import random
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import psutil
import pytest

from headrace_cli.exit_statuses import Exit
from tests.support.headrace_up import HEADRACE, Up
from tests.support.typed_pages import typed

pytestmark = pytest.mark.long

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "interactive.md"

_PATIENCE_S = 40.0
_MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    running = Up()
    running.environment |= {"HEADRACE_AGENT_SESSION_GRACE_MS": "3000", "TERM": "xterm"}
    with running:
        yield running


class Typed:
    """A command in a terminal of its own."""

    def __init__(self, up: Up, *words: str) -> None:
        self._argv = [*HEADRACE, *words]
        self._up = up
        self._status: int | None = None
        self.said = b""

    def __enter__(self) -> Typed:
        self.pid, self._fd = pty.fork()
        if not self.pid:  # pragma: no cover
            os.chdir(self._up.state)
            os.execvpe(self._argv[0], self._argv, self._up.environment)
        self.resize(30, 100)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def until(self, text: bytes) -> None:
        """Until it has said this since the last call."""
        while text not in self.said:
            assert select.select([self._fd], [], [], _PATIENCE_S)[0], self.said
            data = os.read(self._fd, 65_536)
            assert data, self.said
            self.said += data
        self.said = self.said.partition(text)[2]

    def status(self) -> int:
        """Its exit status, once it has ended by itself."""
        with_text = True
        while with_text and select.select([self._fd], [], [], _PATIENCE_S)[0]:
            try:
                self.said += os.read(self._fd, 65_536)
            except OSError:
                with_text = False
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status


def a_shell(up: Up, name: str, *command: str) -> Typed:
    return Typed(up, "shell", "--pool", "a", "--cpu", "0.5", "--id", name, "--", *(command or ("sh",)))


def operation(up: Up, name: str) -> dict[str, object]:
    view: dict[str, object] = json.loads(up.run_until_answered("op", "get", name, "--json").stdout)["operation"]
    return view


def a_job(up: Up, name: str) -> str:
    up.run("run", "--pool", "a", "--cpu", "0.5", "--id", name, "--", "sh", "-c", "echo up; exec sleep 1000")
    up.wait_line(name, "up")
    return name


def exec_(up: Up, name: str, *command: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    words = [*HEADRACE, "op", "exec", name, "0", "--", *command]
    return subprocess.run(words, input=data, capture_output=True, env=up.environment, timeout=_PATIENCE_S, check=False)


def test_a_shell_is_typed_into_and_resized_and_its_status_is_that_of_the_command(up: Up) -> None:
    with a_shell(up, "typed-into") as shell:
        shell.until(b"# " if os.getuid() == 0 else b"$ ")
        shell.type(b"echo $((6*7)) $TERM\r")
        shell.until(b"42 xterm")
        shell.resize(40, 120)
        shell.type(b"sleep 0.3; stty size\r")
        shell.until(b"40 120")
        shell.type(b"sleep 1000\r")
        shell.until(b"1000\r\n")
        shell.type(b"\x03")
        shell.type(b"tty; exit 3\r")
        shell.until(b"/dev/pts/")

        assert shell.status() == 3

    up.run_until_over("typed-into")
    assert operation(up, "typed-into")["failed_jobs"] == 1


def session_ends(up: Up, name: str, count: int) -> list[object]:
    """For each entry about sessions in the history of an operation, once it has so many: how they ended; None: they began."""
    found: list[dict[str, object]] = []
    until_s = time.monotonic() + _PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until_s, found
        lines = up.run_until_answered("op", "history", name, "--json").stdout.splitlines()
        found = [each for each in map(json.loads, lines) if each["happened"] == "session"]
    assert {each["user"] for each in found} == {operation(up, name)["user"]}
    return [each["end"] for each in found]


def test_the_history_says_who_had_sessions_with_a_job_across_restarts_of_the_services(up: Up) -> None:
    name = a_job(up, "visits")
    for _ in range(3):
        assert exec_(up, name, "true").returncode == 0
    assert session_ends(up, name, 2)[:2] == [None, "closed"]

    with subprocess.Popen(
        [*HEADRACE, "op", "exec", name, "0", "--", "cat"], stdin=subprocess.PIPE, env=up.environment
    ) as session:
        assert session_ends(up, name, 3)[2:] == [None]
        for process in up.processes():
            if process.role.startswith(("admission", "allocator")):
                os.kill(process.pid, signal.SIGKILL)
        up.run_until_answered("op", "abort", name)
        up.run_until_over(name)
        session.kill()

    assert session_ends(up, name, 4)[3] in {"job_ended", "closed"}
    text = " ".join(up.run("op", "history", name).stdout.split())
    assert f"session of {operation(up, name)['user']} in job 0 on" in text


def test_the_job_of_a_killed_shell_ends_after_the_grace_time(up: Up) -> None:
    with a_shell(up, "left-alone") as shell:
        shell.type(b"echo pid $$ here\r")
        shell.until(b"pid ")
        shell.until(b"pid ")
        shell.until(b" here")
        os.kill(shell.pid, signal.SIGKILL)

        up.run_until_over("left-alone")

    over = operation(up, "left-alone")
    assert over["state"] == "failed"
    assert "no person is connected to its terminal any more" in str(over["reason"])


def test_a_closed_terminal_ends_the_job_at_once(up: Up) -> None:
    with a_shell(up, "hung-up", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done") as shell:
        shell.until(b"ready")
        os.kill(shell.pid, signal.SIGHUP)

        assert shell.status() == Exit.INTERRUPTED

    up.run_until_over("hung-up")
    assert operation(up, "hung-up")["state"] in ("failed", "aborted")


def test_three_times_ctrl_and_bracket_leaves_a_shell_whose_job_takes_no_key(up: Up) -> None:
    with a_shell(up, "takes-no-key", "sh", "-c", "stty raw -echo; trap '' INT; echo ready; exec sleep 1000") as shell:
        shell.until(b"ready")
        for _ in range(50):
            shell.type(b"x" * 1_000)
        shell.type(b"\x03\x1d\x1d")
        shell.type(b"\x1d")

        assert shell.status() == Exit.INTERRUPTED


def test_ctrl_c_while_the_job_waits_aborts_the_operation(up: Up) -> None:
    with Typed(up, "shell", "--pool", "a", "--cpu", "1000", "--id", "never-starts") as shell:
        shell.until(b"waiting for the job to start")
        shell.type(b"\x03")
        shell.until(b"is aborted, because its job had not started")

        assert shell.status() == Exit.INTERRUPTED

    assert operation(up, "never-starts")["state"] == "aborted"


def test_a_shell_whose_operation_is_aborted_ends_and_says_why(up: Up) -> None:
    with a_shell(up, "aborted") as shell:
        shell.type(b"echo $((6*7))\r")
        shell.until(b"\n42")
        up.run("op", "abort", "aborted")

        assert shell.status() == 128 + signal.SIGHUP
        assert b"aborted by" in shell.said


def test_a_shell_that_is_interrupted_does_not_start_again_for_no_person(up: Up) -> None:
    with a_shell(up, "interrupted") as shell:
        shell.type(b"echo $((6*7))\r")
        shell.until(b"\n42")
        up.run("op", "suspend", "interrupted", "--abort-running-jobs")

        assert shell.status() == 128 + signal.SIGHUP

    assert operation(up, "interrupted")["state"] == "aborted"


def test_without_a_terminal_a_shell_is_refused_with_what_to_type(up: Up) -> None:
    done = up.run("shell", expect=Exit.USAGE)

    assert "headrace run --follow" in done.stderr


def test_a_tree_may_refuse_both(up: Up) -> None:
    name = a_job(up, "no-sessions")
    up.run("tree", "set", "default", "enable_interactive=false")
    try:
        with a_shell(up, "refused-shell") as shell:
            assert shell.status() == Exit.REFUSED
            assert b"enable_interactive is off" in shell.said
        refused = exec_(up, name, "true")
        assert refused.returncode == Exit.REFUSED
        assert b"enable_interactive is off" in refused.stderr
    finally:
        up.run("tree", "set", "default", "enable_interactive=true")
    up.run("op", "abort", name)


def test_a_command_beside_a_job_is_inside_it_and_gives_its_streams_and_its_status(up: Up) -> None:
    name = a_job(up, "beside")
    try:
        done = exec_(up, name, "sh", "-c", "echo $HEADRACE_OPERATION_ID $HEADRACE_JOB_INDEX; echo oops >&2; exit 7")
        assert (done.returncode, done.stdout, done.stderr) == (7, b"beside 0\n", b"oops\n")
        missing = exec_(up, name, "no-such-program")
        assert missing.returncode == 127
        assert b"no such command in PATH" in missing.stderr
        data = random.Random(1).randbytes(10 * _MEGABYTE)
        assert hashlib.sha256(exec_(up, name, "cat", data=data).stdout).digest() == hashlib.sha256(data).digest()
        with Typed(up, "op", "exec", name, "0", "--", "sh") as typed:
            typed.type(b"stty size; exit 4\r")
            typed.until(b"30 100")
            assert typed.status() == 4
    finally:
        up.run("op", "abort", name)


def test_a_flood_with_a_slow_reader_fills_no_memory_and_holds_up_no_other_command(up: Up) -> None:
    name = a_job(up, "flooding")
    words = [*HEADRACE, "op", "exec", name, "0", "--", "yes"]
    agents = [each for each in up.processes() if each.role.startswith(("agent", "runner"))]
    before = {each.pid: psutil.Process(each.pid).memory_info().rss for each in agents}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=up.environment) as flood:
        assert flood.stdout is not None
        assert flood.stdout.read(2) == b"y\n"
        began_s = time.monotonic()
        # Longer than the grace time: a reader that is slow is not gone.
        while time.monotonic() < began_s + 5:
            assert exec_(up, name, "echo", "through").stdout == b"through\n"
        grown = {pid: psutil.Process(pid).memory_info().rss - rss for pid, rss in before.items()}
        assert psutil.Process(flood.pid).memory_info().rss < 200 * _MEGABYTE
        assert flood.stdout.read(_MEGABYTE) == b"y\n" * (_MEGABYTE // 2)
        flood.kill()
    up.run("op", "abort", name)

    assert max(grown.values()) < 30 * _MEGABYTE


def test_a_shell_survives_the_end_of_its_agent(up: Up) -> None:
    with a_shell(up, "survives") as shell:
        shell.type(b"one=first; echo $one value\r")
        shell.until(b"first value")
        assert session_ends(up, "survives", 1) == [None]
        [agent] = [each.pid for each in up.processes() if each.role.startswith("agent")]
        os.kill(agent, signal.SIGKILL)
        shell.type(b"echo $one again\r")
        shell.until(b"first again")
        assert session_ends(up, "survives", 3) == [None, "unknown", None]
        shell.type(b"exit 5\r")

        assert shell.status() == 5


def test_every_command_of_the_page_does_what_it_says(up: Up) -> None:
    def until_running(line: str) -> None:
        if line.startswith("run "):
            while not json.loads(up.run("op", "get", "training", "--json").stdout)["places"]["running"]:
                pass

    said = typed(up, _PAGE, after=until_running)

    assert "this is job 0 of training" in "".join(said.values())
