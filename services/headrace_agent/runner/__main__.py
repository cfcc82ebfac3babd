"""`python -m headrace_agent.runner --state DIR`: runs jobs until it is told to end.

Exit status: 0 everything ended, 1 it could not start, 2 the command line is wrong, 3 another runner uses the state folder.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys

from headrace.errors import BadInput
from headrace.obs.logging import configure, logger
from headrace_agent.host.state_folder import ForeignState, StateInUse, claim
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.port import Host
from headrace_agent.runner.host.processes import LinuxProcesses
from headrace_agent.runner.service import Runner
from headrace_agent.runner.settings import Settings, parse


def main(arguments: list[str]) -> int:
    """Runs the runner to its end. Returns its exit status."""
    try:
        settings = parse(arguments)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    os.umask(0o077)
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
    runner.run()
    os.close(lock)
    return 0


def _keep_descriptors() -> None:
    """Has no job inherit what whoever started us left open. What Python opens is inherited by nobody."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing is closed by now
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def _hear_all_signals() -> None:
    """Undoes what whoever started us ignored or blocked, since the jobs would inherit it.

    Two are ignored by Python itself, which restores them for every child.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _make_runner(settings: Settings) -> Runner:
    with contextlib.suppress(PermissionError):  # refused to one that leads a session already
        os.setsid()  # a terminal that goes away takes its session along, and the runner is to stay
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # jobs inherit it: a core file would fill somebody's disk
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    processes = LinuxProcesses(settings.state)
    configure("runner", settings.log_level)
    log = logger()
    if not processes.become_reaper():
        log.info("no_subreaper", why="daemons of jobs are found by their process group only")
    return Runner(Host(LinuxFiles(), processes), settings, log, (soft, hard), hard)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
