"""The runner as its agent sees it: real processes, real pipes, real signals."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.wire.heartbeat import JobResult
from headrace.wire.preemption import InterruptSignal
from headrace_agent.runner.protocol import EndAll, Ended, FullReport, Interrupt, NodeLease, Started
from tests.unit.runner.builders import OPERATION, a_job, a_run
from tests.unit.runner.harness import LONG_LEASE, ARunner, Signpost, gone, lives, runner, signpost

__all__ = ["runner", "signpost"]
LARGEST_RSS_KB = 25 * 1000

#: Signals 32 and 33 belong to the C library: no program can change what it inherits for them, and some shells and makes ignore them.
_RESERVED_SIGNALS = 1 << 31 | 1 << 32


def open_files(soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_job_runs_and_its_end_says_how_it_went(runner: ARunner) -> None:
    end = runner.start().sh(0, "echo out; echo err >&2; exit 7")

    assert (end.result, end.exit_code, end.signal, end.allocation) == (JobResult.FAILED, 7, None, "alloc-1")
    assert (runner.log(0), runner.log(0, "stderr"), end.stderr_tail) == (b"out\n", b"err\n", "err\n")
    assert end.ended_at_ms >= end.started_at_ms > 0


def test_time_and_memory_that_a_job_used_are_told(runner: ARunner) -> None:
    script = (
        "import time; b = bytearray(60_000_000); t = time.process_time()\nwhile time.process_time() < t + 0.2: pass"
    )
    agent = runner.start()
    agent.say(a_run(0, sys.executable, "-c", script))
    end = agent.end_of(0)

    assert end.result is JobResult.COMPLETED
    assert end.cpu_ms >= 200
    assert end.max_rss_bytes >= 60_000_000


def test_a_job_that_dies_of_a_signal_has_failed(runner: ARunner) -> None:
    end = runner.start().sh(0, "kill -SEGV $$")

    assert (end.result, end.exit_code, end.signal) == (JobResult.FAILED, None, signal.SIGSEGV)
    assert "SIGSEGV" in end.reason


def test_a_job_sees_its_environment_and_nothing_else(runner: ARunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "x")
    agent = runner.start()
    agent.say(a_run(0, "/usr/bin/env", environment={"A": "1", "B": "ä"}))
    agent.end_of(0)

    assert sorted(runner.log(0).decode().splitlines()) == [
        "A=1",
        "B=ä",
        f"HEADRACE_JOB={OPERATION}.0.1",
        f"HEADRACE_RUNNER={runner.state}",
    ]


def start_deaf() -> None:
    """As a shell starts what it puts into the background, `nohup` what is to stay, and others what nobody may stop."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGRTMIN):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGCHLD])


@pytest.mark.parametrize("preexec_fn", [None, start_deaf])
def test_a_job_inherits_no_descriptor_no_input_and_no_ignored_signal(
    runner: ARunner, preexec_fn: Callable[[], None] | None
) -> None:
    left_open = os.open("/", os.O_RDONLY)
    agent = runner.start(preexec_fn=preexec_fn, left_open=(left_open,))
    os.close(left_open)
    agent.sh(0, "ls /proc/self/fd; cat; ulimit -c")
    agent.say(a_run(1, "grep", "-E", "SigIgn|SigBlk", "/proc/self/status"))  # a shell would change both
    agent.end_of(1)

    *fds, core = runner.log(0).decode().split()
    _, blocked, _, ignored = runner.log(1).decode().split()
    assert fds == ["0", "1", "2", "3"]  # 3 is the folder that ls reads
    assert int(blocked, 16) == 0
    assert int(ignored, 16) & ~_RESERVED_SIGNALS == 0
    assert core == "0"


def test_a_job_gets_the_limit_of_open_files_that_the_runner_was_started_with(
    runner: ARunner, signpost: Signpost
) -> None:
    agent = runner.start(preexec_fn=open_files(100, 500))
    agent.run(0, "sh", "-c", f"read x < {signpost.path}; ulimit -Sn; ulimit -Hn")
    signpost.path.write_text("go\n")
    agent.end_of(0)

    assert runner.log(0) == b"100\n500\n"


def test_without_a_working_directory_a_job_gets_an_empty_one_that_goes_with_it(runner: ARunner) -> None:
    agent = runner.start()
    agent.sh(0, "pwd; ls -A; mkdir -p a/b; touch a/b/c d; ln -s / e; chmod 0 a/b/c")

    scratch = Path(runner.log(0).decode().strip())
    assert scratch.parent == runner.state / "scratch"
    assert not scratch.exists()
    agent.say(EndAll(0, "done"))
    runner.wait()
    ARunner.start(runner)  # what a runner could not remove, the next one does
    assert list((runner.state / "scratch").iterdir()) == []


def test_a_job_runs_where_it_is_told_to(runner: ARunner, tmp_path: Path) -> None:
    agent = runner.start()
    agent.sh(0, "pwd", working_directory=str(tmp_path))

    assert runner.log(0).decode().strip() == str(tmp_path)
    assert tmp_path.is_dir()


@pytest.mark.parametrize(
    ("argv", "changes", "exit_code", "words"),
    [
        (["nonesuch"], {}, 127, "nonesuch: no such command in PATH=/usr"),
        (["/nonesuch/x"], {}, 127, "/nonesuch/x: no such file"),
        (["/etc/passwd"], {}, 126, "/etc/passwd: Permission denied"),
        (["/"], {}, 126, "/: Permission denied"),
        (["true"], {"working_directory": "/nonesuch"}, 126, "the working directory /nonesuch: No such file"),
        (["true"], {"working_directory": "etc"}, 126, "the working directory etc is not absolute"),
        (["true"], {"environment": {"A=B": "c"}}, 126, "illegal environment variable name"),
        (["true", "a\0b"], {}, 126, "embedded null byte"),
        ([""], {}, 127, "no command is given"),
        (["true", "x" * 200_000], {}, 126, "Argument list too long"),
    ],
)
def test_what_cannot_be_started_has_failed_with_what_and_where(
    runner: ARunner, argv: list[str], changes: dict[str, object], exit_code: int | None, words: str
) -> None:
    agent = runner.start()
    agent.say(a_run(0, *argv, **changes))
    end = agent.end_of(0)

    assert (end.result, end.exit_code) == (JobResult.FAILED, exit_code)
    assert words in end.reason
    assert agent.sh(1, "exit 0").result is JobResult.COMPLETED
    [spare] = (runner.state / "scratch").iterdir()
    assert list(spare.iterdir()) == []


def test_a_script_whose_interpreter_is_missing_says_so(runner: ARunner, tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text("#!/nonesuch/python\n")
    script.chmod(0o755)
    agent = runner.start()
    agent.say(a_run(0, str(script)))

    assert "exists, but the interpreter that it names does not exist" in agent.end_of(0).reason


def test_an_interrupted_job_gets_a_chance_to_end_by_itself(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    agent.run(0, "sh", "-c", f"trap 'echo saved; exit 0' TERM; echo up > {signpost.path}; while :; do sleep 0.01; done")
    assert signpost.line() == "up"
    agent.say(Interrupt(a_job(), 60_000, "preempted for research"))
    end = agent.end_of(0)

    assert (end.result, end.exit_code, end.reason) == (JobResult.ABORTED, 0, "preempted for research")
    assert runner.log(0) == b"saved\n"


@pytest.mark.parametrize("sign", [InterruptSignal.SIGTERM, InterruptSignal.SIGINT])
def test_a_stopped_job_can_be_interrupted(runner: ARunner, sign: InterruptSignal) -> None:
    agent = runner.start()
    started = agent.run(0, "sleep", "1000", interrupt_signal=sign)
    os.kill(started.pid, signal.SIGSTOP)
    agent.say(Interrupt(a_job(), 60_000, "preempted"))

    assert agent.end_of(0).signal == signal.Signals[sign]


def test_a_job_that_ignores_the_interruption_is_killed_with_its_whole_group(
    runner: ARunner, signpost: Signpost
) -> None:
    agent = runner.start()
    deaf = f"trap '' TERM; sleep 1000 & echo $! > {signpost.path}; wait; sleep 1000"
    started = agent.run(0, "sh", "-c", deaf)
    child = int(signpost.line())
    agent.say(Interrupt(a_job(), 50, "preempted"))
    end = agent.end_of(0)

    assert (end.result, end.signal) == (JobResult.ABORTED, signal.SIGKILL)
    assert not lives(started.pid)
    assert not lives(child)


def test_an_interruption_is_heard_by_the_whole_group(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    child = f"trap 'echo heard > {signpost.path}' TERM; echo up > {signpost.path}; while :; do sleep 0.01; done"
    agent.run(0, "sh", "-c", f'sh -c "{child}" & {child}')
    assert [signpost.line(), signpost.line()] == ["up", "up"]
    agent.say(Interrupt(a_job(), 600_000, "preempted"))

    assert [signpost.line(), signpost.line()] == ["heard", "heard"]


def test_a_job_that_had_ended_before_it_was_interrupted_has_completed(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    started = agent.run(0, "sh", "-c", f"read x < {signpost.path}; exit 0")
    os.kill(runner.pid, signal.SIGSTOP)  # so that it sees the end and the order at the same moment
    signpost.path.write_text("go\n")
    assert gone(started.pid)
    agent.say(Interrupt(a_job(), 1000, "preempted"))
    os.kill(runner.pid, signal.SIGCONT)

    assert agent.end_of(0).result is JobResult.COMPLETED


@pytest.mark.parametrize(
    "leave",
    [
        "sleep 1000 & echo $! > {path}",
        "setsid sh -c 'echo $$ > {path}; exec sleep 1000' &",
        "(setsid sh -c 'sleep 1000 & echo $! > {path}' &) &",
        '{python} -c \'import os; os.setpgid(0, 0); print(os.getpid(), file=open("{path}", "w"))\nwhile 1: pass\' &',
        "env -u HEADRACE_JOB sh -c 'sleep 1000 & echo $! > {path}' &",
    ],
    ids=["child", "daemon", "grandchild of a daemon", "group of its own", "without our marker"],
)
def test_what_a_job_leaves_behind_ends_with_it_and_does_not_hold_its_end_back(
    runner: ARunner, signpost: Signpost, leave: str
) -> None:
    agent = runner.start()
    agent.run(1, "sleep", "1000")
    script = leave.format(path=signpost.path, python=sys.executable) + f"\nread x < {signpost.path}.go; echo done"
    os.mkfifo(f"{signpost.path}.go")
    agent.run(0, "sh", "-c", script)
    child = int(signpost.line())
    assert lives(child)
    Path(f"{signpost.path}.go").write_text("\n")
    end = agent.end_of(0)

    assert end.result is JobResult.COMPLETED
    assert runner.log(0) == b"done\n"
    assert not lives(child)
    assert agent.hello().running[0].run.job == a_job(1)


def test_a_child_that_never_stops_writing_does_not_hold_the_end_back(runner: ARunner) -> None:
    end = runner.start().sh(0, "yes & sleep 0.05; exit 0")

    assert end.result is JobResult.COMPLETED


def test_a_process_that_hides_from_its_job_goes_with_the_last_one(runner: ARunner, signpost: Signpost) -> None:
    agent = runner.start()
    hide = f"env -u HEADRACE_JOB setsid sh -c 'echo $$ > {signpost.path}; exec sleep 1000' &"
    agent.run(1, "sleep", "1000")
    agent.run(0, "sh", "-c", f"{hide} sleep 1000")
    hidden = int(signpost.line())
    agent.say(Interrupt(a_job(0), 0, "over"))
    agent.end_of(0)
    agent.say(Interrupt(a_job(1), 0, "over"))
    agent.end_of(1)

    assert gone(hidden)


def test_all_that_was_written_before_the_end_is_in_the_log(runner: ARunner) -> None:
    agent = runner.start()
    agent.sh(0, "head -c 3000000 /dev/zero; printf end")

    log = runner.logs / OPERATION / "0.1.stdout"
    assert log.stat().st_size == 3_000_003
    assert log.read_bytes().endswith(b"\0end")


def test_many_noisy_jobs_lose_nothing(runner: ARunner) -> None:
    agent = runner.start()
    agent.say(*(a_run(index, "sh", "-c", "head -c 1000000 /dev/zero; echo >&2 $?") for index in range(20)))
    for index in range(20):
        assert agent.end_of(index).result is JobResult.COMPLETED

    assert {(runner.logs / OPERATION / f"{index}.1.stdout").stat().st_size for index in range(20)} == {1_000_000}


def test_the_tail_of_stderr_is_always_text(runner: ARunner) -> None:
    end = runner.start().sh(0, "head -c 100000 /dev/zero | tr '\\0' '\\377' >&2; printf last >&2; exit 1")

    assert end.stderr_tail == "�" * 2044 + "last"


def test_a_runner_starts_nothing_before_it_is_told_a_lease_and_nothing_after_a_restart(runner: ARunner) -> None:
    agent = runner.start(lease=None)
    before = agent.sh(0, "true")
    agent.say(LONG_LEASE)
    leased = agent.sh(1, "true")
    runner.kill()
    after = runner.start(lease=None).sh(2, "true")

    assert [end.result for end in (before, leased, after)] == [
        JobResult.ABORTED,
        JobResult.COMPLETED,
        JobResult.ABORTED,
    ]
    assert before.reason == after.reason == "not started: the runner has no lease yet"


def test_a_lease_ends_jobs_without_any_further_word(runner: ARunner) -> None:
    agent = runner.start(lease=None)
    # Counted from when the runner is there: starting it takes seconds on a busy machine.
    until_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 3_000_000_000
    agent.say(NodeLease(until_ns))
    started = agent.run(0, "sleep", "1000")
    end = agent.end_of(0)

    assert end.result is JobResult.ABORTED
    assert "lease" in end.reason
    assert end.ended_at_ms - end.started_at_ms >= (until_ns - started.started_boottime_ns) // 1_000_000


def test_a_thousand_jobs_run_at_once(runner: ARunner) -> None:
    agent = runner.start()
    agent.say(*(a_run(index, "sleep", "1000") for index in range(1000)))
    for index in range(1000):
        agent.hear(Started, lambda started, index=index: started.job == a_job(index))  # type: ignore[misc]
    assert len(agent.hello().running) == 1000
    agent.say(EndAll(10_000, "enough"))

    assert all(agent.end_of(index).result is JobResult.ABORTED for index in range(1000))
    assert runner.wait() == 0


def test_of_more_jobs_than_descriptors_the_rest_does_not_start_and_the_others_run_on(runner: ARunner) -> None:
    agent = runner.start(preexec_fn=open_files(625, 625))
    agent.say(*(a_run(index, "sleep", "1000") for index in range(12)))
    refused = [agent.hear(Ended) for _ in range(5)]

    assert {(told.end.result, told.is_host_fault) for told in refused} == {(JobResult.ABORTED, True)}
    assert "and the limit of open files of this host's runner allows no more" in refused[0].end.reason
    assert len(agent.hello().running) == 7


def test_the_whole_runner_stays_under_25_mb() -> None:
    script = (
        "import sys, headrace_agent.runner.__main__, ctypes\n"
        "bad = {'asyncio', 'anyio', 'nats', 'psutil'} & set(sys.modules)\n"
        "rss = [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')]\n"
        "print(rss[0], *bad)\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=20).stdout

    rss_kb, *forbidden = said.split()
    assert forbidden == []
    assert int(rss_kb) < LARGEST_RSS_KB


def test_a_running_runner_stays_under_25_mb_after_a_hundred_jobs(runner: ARunner) -> None:
    agent = runner.start()
    agent.say(*(a_run(index, "true") for index in range(100)))
    for index in range(100):
        agent.end_of(index)

    status = Path(f"/proc/{runner.pid}/status").read_text()
    assert int(status.partition("VmRSS:")[2].split()[0]) < LARGEST_RSS_KB


def test_an_operation_can_be_followed_through_the_log_by_its_id(runner: ARunner) -> None:
    agent = runner.start()
    agent.sh(0, "exit 3")

    [started], [ended] = runner.events("job started"), runner.events("job ended")
    for line in (started, ended):
        assert (line["operation"], line["index"], line["attempt"], line["allocation"]) == (OPERATION, 0, 1, "alloc-1")
    assert (ended["result"], ended["exit_code"]) == ("failed", 3)


def test_the_figures_are_in_the_log_and_no_invariant_is_broken(runner: ARunner) -> None:
    runner.start().sh(0, "echo out; exit 3")

    assert [line["logs_bytes"] for line in runner.events("figures")] == [0]
    assert runner.events("broken invariant") == []


def test_a_picture_is_told_before_anything_else(runner: ARunner) -> None:
    runner.start().sh(0, "exit 0")

    assert isinstance(runner.agent().hello(), FullReport)
