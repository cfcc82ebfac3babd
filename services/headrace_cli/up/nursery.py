"""The nursery: a process that imports all services once, forks each of them, and goes.

A service spends most of its start on imports. Forked, all of them start in half the time and share that memory. They become children
of `up`, which adopts the orphans of the nursery. In all else they are as if `up` had started each, which is how it restarts them.
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

_MODULE = ["-m", "headrace_cli.up.nursery"]
#: numpy brings a library for matrices that would start threads, which do not survive a fork, and which no service needs.
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1"}
#: Where /proc/<pid>/stat has the bounds of the command line, counted from behind the name.
_COMMAND_LINE = slice(45, 47)


class Nursery:
    """Begins at once. Whoever takes the first service waits until all are forked.

    Where a module cannot be imported or the kernel gives no orphans to us, nothing is forked.
    """

    def __init__(self, commands: Mapping[str, Command], environment: Mapping[str, str]) -> None:
        services = {name: command for name, command in commands.items() if command.argv[1] == "-m"}
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

    def take(self, name: str) -> int | None:
        """Returns the process id of a service, once. None for what was not forked: it is to be started by itself."""
        if name in self._expected:
            told, _ = self._process.communicate()
            adopt_orphans(False)
            self._expected.clear()
            self._pids = {
                forked: int(pid) for pid, forked in (line.split(" ", 1) for line in told.decode().splitlines())
            }
        return self._pids.pop(name, None)


def main() -> None:
    """`python -m headrace_cli.up.nursery '["NAME", "LOG", "python", "-m", "MODULE", …]' …`: forks each, and tells its process id."""
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
    """Makes this process look, from within and from without, as if it had been started by its command line."""
    os.setsid()
    _show(argv)
    os.write(1, f"{os.getpid()} {name}\n".encode())  # from now on it counts as forked
    with open_log(log) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = argv[2:]


def _show(argv: list[str]) -> None:
    """Writes the command line where `ps` reads it, over the longer one of the nursery."""
    with open("/proc/self/stat", "rb") as file:
        start, end = map(int, file.read().rpartition(b")")[2].split()[_COMMAND_LINE])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(b"".join(os.fsencode(word) + b"\0" for word in argv).ljust(end - start, b"\0"))


if __name__ == "__main__":
    main()
