"""`python -m headrace_agent.runner --state DIR`: runs jobs until it is told to end.

Exit status: 0 everything ended, 1 the runner could not start, 2 the command line is wrong, 3 another runner uses the state folder.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import time

from headrace.errors import BadInput
from headrace.installation.systems import require_linux_in_process
from headrace.obs.logging import configure, logger
from headrace.systemd.notifier import notifier_of
from headrace_agent.host.state_folder import ForeignState, StateInUse, claim
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.runner.service import Runner
from headrace_agent.runner.settings import Settings, parse


def main(arguments: list[str]) -> int:
    """Start the runner, and return its exit status when it has ended."""
    require_linux_in_process("the runner of a Headrace agent")
    try:
        settings = parse(arguments)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    os.umask(0o077)
    notifier = notifier_of(os.environ, os.getpid(), time.monotonic)
    _keep_descriptors()
    _hear_all_signals()
    try:
        lock = claim(settings.state, "runner")
        runner = _make_runner(settings)
    except StateInUse as error:
        print(error, file=sys.stderr)
        return 3
    except ForeignState as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"the runner cannot start: {error.filename or settings.state}: {error.strerror}", file=sys.stderr)
        return 1
    if settings.ready_fd >= 0:
        os.write(settings.ready_fd, b"ready\n")
        os.close(settings.ready_fd)
    gc.freeze()
    notifier.ready("takes jobs")
    runner.run(notifier)
    os.close(lock)
    return 0


def _keep_descriptors() -> None:
    """Keep jobs from inheriting descriptors that the runner itself inherited from its parent process.

    Descriptors that Python opens are not inherited.
    """
    for name in os.listdir("/proc/self/fd"):
        # One of the names is the descriptor by which the folder was listed. It is closed by now, so the call below fails for it.
        with contextlib.suppress(OSError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def _hear_all_signals() -> None:
    """Give all signals that the parent process ignored or blocked their normal effect again, since the jobs would inherit these settings.

    Python itself ignores two signals (SIGPIPE, SIGXFSZ) and restores them for every child.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _make_runner(settings: Settings) -> Runner:
    # `setsid` fails if the process leads a session already.
    with contextlib.suppress(PermissionError):
        # When a terminal is closed, all processes of its session end. In a session of its own the runner survives that.
        os.setsid()
    # Jobs inherit this limit. Without it, core files of jobs could fill a disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    processes = LinuxProcesses(settings.state)
    configure("runner", settings.log_level)
    log = logger()
    if not processes.become_reaper():
        log.info(
            "no_subreaper",
            why="daemons of jobs are found by their process group only; a daemon that left it may outlive its job",
        )
    return Runner(Host(LinuxFiles(), processes), settings, log, (soft, hard), hard)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
