"""Commands of `headrace` as processes of their own that do not import everything anew.

A server process imports the command line once and forks for each command. Only the imports are shared: arguments, environment, folder,
output and exit status are the command's own, as if it had been started by a shell.
"""

from __future__ import annotations

import atexit
import json
import os
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
from typing import NoReturn

__all__ = ["run_forked"]

_LARGEST_REQUEST_BYTES = 1 << 20


def run_forked(
    words: Sequence[str], *, environment: Mapping[str, str], cwd: Path, timeout_s: float, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """One command to its end, however that is."""
    with ExitStack() as files:
        streams = [files.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(stdin.encode())
        streams[0].seek(0)
        server = _server()
        server.settimeout(timeout_s)
        request = json.dumps([list(words), dict(environment), str(cwd)]).encode()
        socket.send_fds(server, [request], [stream.fileno() for stream in streams])
        try:
            status = int(server.recv(64))
        except TimeoutError:
            _server.cache_clear()  # it waits for the command; the next one gets another
            raise
        texts = []
        for stream in streams[1:]:
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess(["headrace", *words], status, *texts)


@cache
def _server() -> socket.socket:
    """Started with the first command of a test process, and ended with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_commands", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env=environment,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> None:
    from headrace_cli import __main__ as command_line

    for name in command_line.COMMANDS:
        command_line.app[name]  # imported here, once for all
    while True:
        data, streams, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST_BYTES, 3)
        if not data:
            return
        child = os.fork()
        if not child:
            requests.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            _carry_out(command_line.main, *json.loads(data))
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        requests.send(str(os.waitstatus_to_exitcode(status)).encode())


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
