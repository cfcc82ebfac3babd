"""Commands of `headrace` as processes of their own that do not import everything anew.

A server process imports the command line once and forks for each command. Only the imports are shared: arguments, environment, folder,
files, signals and exit status are the command's own, as if it had been started by a shell.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn

__all__ = ["Forked", "begin_forked", "program", "run_forked"]

_LARGEST_REQUEST_BYTES = 1 << 20
_PROGRAM = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
socket.send_fds(server, [json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()], [0, 1, 2])
server.recv(64)
sys.exit(int(server.recv(64)))
"""


class Forked:
    """A command that was begun: what tests use of `subprocess.Popen`."""

    def __init__(
        self, words: Sequence[str], *, environment: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> None:
        self.args = ["headrace", *words]
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._keeper = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._keeper.connect(_server())
        request = json.dumps([list(words), dict(environment), str(cwd)]).encode()
        socket.send_fds(self._keeper, [request], list(streams))
        self.pid = int(self._keeper.recv(64))

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end. Returns the exit status, or raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._keeper.settimeout(timeout)
            try:
                self.returncode = int(self._keeper.recv(64) or -signal.SIGKILL)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._keeper.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the end. Returns what was written and not read yet, which must not be much."""
        self.wait(timeout)
        stdout, stderr = (stream.read() if stream else "" for stream in (self.stdout, self.stderr))
        self._close()
        return stdout, stderr

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if kind is not None:
            # A test that was ended for its length must not wait for the command again.
            self.kill()
        self.wait()

    def _close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def begin_forked(
    words: Sequence[str], *, environment: Mapping[str, str], cwd: Path, stderr: IO[bytes] | None = None
) -> Forked:
    """Begins a command. Its stdout, and its stderr unless that is given, can be read while it runs."""
    with ExitStack() as files:
        pipes = [os.pipe() for _ in range(1 if stderr else 2)]
        writers = [files.enter_context(open(writer, "wb")).fileno() for _, writer in pipes]
        streams = [files.enter_context(open(os.devnull)).fileno(), *writers, *([stderr.fileno()] if stderr else [])]
        forked = Forked(words, environment=environment, cwd=cwd, streams=streams)
    readers = [open(reader, encoding="utf-8") for reader, _ in pipes]  # noqa: SIM115
    forked.stdout, forked.stderr = readers[0], None if stderr else readers[1]
    return forked


def run_forked(
    words: Sequence[str], *, environment: Mapping[str, str], cwd: Path, timeout_s: float, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """One command to its end, however that is."""
    with ExitStack() as files:
        streams = [files.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(stdin.encode())
        streams[0].seek(0)
        status = Forked(words, environment=environment, cwd=cwd, streams=[stream.fileno() for stream in streams]).wait(
            timeout_s
        )
        texts = []
        for stream in streams[1:]:
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess(["headrace", *words], status, *texts)


def program(path: Path) -> None:
    """Writes a program that is the command for this test process, and starts as fast as a command that were forked."""
    path.write_text(_PROGRAM.format(python=sys.executable, address=_server()))
    path.chmod(0o755)


@cache
def _server() -> str:
    """Its address. Started with the first command of a test process, and ended with it and with all that it forked."""
    folder = tempfile.mkdtemp(prefix="hr-forks-")
    address = f"{folder}/socket"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_commands", str(listener.fileno())],
        pass_fds=[listener.fileno()],
        env={name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")},
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    listener.close()

    def end() -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return address


def _serve(listener: socket.socket) -> NoReturn:
    # All that a command imports is imported here, once for all: what it needs only to run as well, and what help is laid out with.
    import anyio
    import rich.markdown  # noqa: F401

    import headrace_cli.commands.pools.files
    import headrace_cli.completion.answer
    import headrace_cli.completion.live_names
    import headrace_cli.completion.setting_words  # noqa: F401
    from headrace_cli.__main__ import main
    from headrace_cli.command_line import app

    for name in app:
        app[name]
    anyio.run(anyio.sleep, 0)
    gc.freeze()  # nor does any command look for cycles among what it shares
    running: dict[int, tuple[int, socket.socket]] = {}
    events = select.poll()
    events.register(listener, select.POLLIN)
    while True:
        for descriptor, _ in events.poll():
            if descriptor == listener.fileno():
                begun = _begin(listener, main)
                running[begun[0]] = begun[1:]
                events.register(begun[0], select.POLLIN)
            else:
                events.unregister(descriptor)
                os.close(descriptor)
                _tell_end(*running.pop(descriptor))


def _begin(listener: socket.socket, main: Callable[[], None]) -> tuple[int, int, socket.socket]:
    """Forks one command and tells its process id to whoever asked. Returns what becomes readable when it ends, too."""
    connection, _ = listener.accept()
    data, streams, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST_BYTES, 3)
    child = os.fork()
    if not child:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
        _carry_out(main, *json.loads(data))
    for stream in streams:
        os.close(stream)
    with suppress(OSError):  # whoever asked may have gone
        connection.send(str(child).encode())
    return os.pidfd_open(child), child, connection


def _tell_end(child: int, connection: socket.socket) -> None:
    _, status = os.waitpid(child, 0)
    with suppress(OSError), connection:
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _carry_out(main: Callable[[], None], words: list[str], environment: dict[str, str], folder: str) -> NoReturn:
    """Runs the command line as a new process would, and ends this one."""
    status = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["headrace", *words]
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
