"""The nursery: a process that imports all services once, forks a process for each of them, and ends.

A service spends most of its start on imports. Forked services start in half the time and share the memory of the imports. When the nursery
ends, the services become children of `up`, which adopts orphans. In all other respects they behave as if `up` had started each service on
its own. When `up` restarts a service later, it starts that service without a nursery.
"""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from collections.abc import Mapping

import msgspec

from headrace.own_process import adopt_orphans
from headrace_cli.up.processes import Command, open_log

_MODULE = ["-m", "headrace_cli.up.forking"]
#: Environment that keeps numpy's library for matrices from starting threads. Threads do not survive a fork, and no service needs them.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1"}
#: Fields of /proc/<pid>/stat with the begin and the end of the command line, counted after the process name.
_COMMAND_LINE = slice(45, 47)


class Nursery:
    """Starts a process that forks all services. The first `claim` of a service waits until all services are forked.

    If a module cannot be imported, or the kernel does not let this process adopt orphans, nothing is forked, and `claim` returns None.
    """

    def __init__(self, commands: Mapping[str, Command], environment: Mapping[str, str]) -> None:
        services = {name: command for name, command in commands.items() if command.is_forked}
        self._expected = set(services) if adopt_orphans(True) else set[str]()
        self._pids: dict[str, int] = {}
        words = [msgspec.json.encode([name, str(services[name].log), *services[name].argv]) for name in self._expected]
        self._process = subprocess.Popen(
            [sys.executable, *_MODULE, *words],
            env={**environment, **_NO_THREADS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def claim(self, name: str) -> int | None:
        """Return the process id of a forked service. None at any later call for the same service, or if it was not forked: then the process
        must be started on its own.
        """
        if name in self._expected:
            told, _ = self._process.communicate()
            adopt_orphans(False)
            self._expected.clear()
            self._pids = {
                forked: int(pid) for pid, forked in (line.split(" ", 1) for line in told.decode().splitlines())
            }
        return self._pids.pop(name, None)


def main() -> None:
    """Run `python -m headrace_cli.up.forking '["NAME", "LOG", "python", "-m", "MODULE", …]' …`: fork each service and print its pid."""
    commands = [msgspec.json.decode(word, type=list[str]) for word in sys.argv[1:]]
    services = [importlib.import_module(f"{argv[2]}.__main__") for _, _, *argv in commands]
    for name in _NO_THREADS:
        del os.environ[name]
    gc.freeze()
    for (name, log, *argv), service in zip(commands, services, strict=True):
        if not os.fork():
            _become(name, log, argv)
            sys.exit(service.main())


def _become(name: str, log: str, argv: list[str]) -> None:
    """Make this process look, to itself and to others, as if its own command line had started it."""
    os.setsid()
    _show(argv)
    os.write(1, f"{os.getpid()} {name}\n".encode())  # from now on the service counts as forked
    with open_log(log) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = argv[2:]


def _show(argv: list[str]) -> None:
    """Overwrite the command line that `ps` shows. It is the command line of the nursery until then, which is longer, so there is enough
    space.
    """
    with open("/proc/self/stat", "rb") as file:
        start, end = map(int, file.read().rpartition(b")")[2].split()[_COMMAND_LINE])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(b"".join(os.fsencode(word) + b"\0" for word in argv).ljust(end - start, b"\0"))


if __name__ == "__main__":
    main()
