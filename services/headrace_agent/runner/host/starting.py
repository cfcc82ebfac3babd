"""Starts processes without blocking the loop of the runner.

A job chooses its program and its working folder, and opening them may take for ever: they may lie on a file system that does not answer, or
the owner of the program's file may hold a file lease on it, and `exec` waits until the lease is released. So only a child process or a
thread accesses the files, never the thread of the loop. A `Starting` has a descriptor for the poll, which reports when the program runs or
cannot run.

* With the runner's own account: a thread calls `posix_spawn`, and only this thread waits for the child. The child shares the memory of the
  runner until its program runs. So the start takes only a quarter of the time of the other way, which copies the runner.
* With another account: the child is a copy of the runner. It switches to the account before it accesses the folder and the program.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import queue
import resource
import select
import signal
import termios
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, NoReturn

from headrace.errors import HeadraceError
from headrace_agent.runner.host.accounts import Account

#: Signals that Python ignores or handles in the runner; every job gets the default behaviour that programs expect.
_TO_DEFAULT: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FIRST_OTHER_FD: Final = 3
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
#: Bytes allocated for each opaque structure of the C library. The structures take 80, 336 and 128 bytes.
_OPAQUE_BYTES: Final = 1024
_THREAD_STACK_BYTES: Final = 256 * 1024
_REPORT_BYTES: Final = 256

#: Soft and hard limits by the number of the resource.
ProcessLimits = Mapping[int, tuple[int, int]]
#: The step of a start that failed.
StartPart = Literal["limits", "account", "folder", "program", "interpreter", "process"]


class Spawn(NamedTuple):
    """A process to start."""

    argv: list[str]
    environment: dict[str, str]
    working_directory: str
    stdout_fd: int
    stderr_fd: int
    #: Account of the process; None: the runner's own.
    account: Account | None = None
    #: Soft and hard limits that a process with another account sets for itself before it runs its program. Setting them from outside
    #: requires a capability (CAP_SYS_RESOURCE) that root does not have in a container.
    limits: ProcessLimits = MappingProxyType({})
    #: The `cgroup.procs` file of a cgroup that a process with another account joins. It joins the cgroup before it runs its program, so
    #: every process that the program starts is in the cgroup too. Empty: none.
    cgroup_file: str = ""
    #: Descriptor of the input; negative: empty input.
    stdin_fd: int = -1
    #: Path of a terminal that becomes the controlling terminal and the input of the process, and is open as `stdout_fd` too; empty: none.
    terminal: str = ""


class CannotStart(HeadraceError):
    """A new process could not begin to run its program."""

    def __init__(self, part: StartPart, error: int) -> None:
        self.part = part
        #: The system's error number, as in `errno`.
        self.error = error
        super().__init__(f"{part}: {os.strerror(error)}")


class Starting:
    """A process that does not run its program yet.

    `fd` becomes readable when the program runs or cannot run; `Starter.result` closes it.
    """

    def __init__(self, fd: int, report_fd: int) -> None:
        self.fd = fd
        self.report_fd = report_fd
        #: The pid; 0: not known.
        self.pid = 0
        #: The thread that waits for the process; 0: none.
        self.thread = 0
        #: Set by `Starter.kill`: the process must not run its program any more.
        self.is_unwanted = False

    def report(self, error: CannotStart | None) -> None:
        """Write the outcome, which makes `fd` readable."""
        text = b"0" if error is None else f"{error.error} {error.part}".encode()
        with suppress(OSError):
            os.write(self.report_fd, text)


class Starter:
    """Starts processes with the descriptor `stdin` as their input. Only the thread of the loop may call it."""

    def __init__(self, stdin: int) -> None:
        self._stdin = stdin
        self._orders: queue.SimpleQueue[tuple[Starting, _PosixSpawn]] = queue.SimpleQueue()
        self._threads = 0
        #: Number of starts that threads handle or will handle.
        self._in_threads = 0

    def begin(self, order: Spawn) -> Starting:
        """Begin to start a process in a session of its own.

        Raises OSError if the host lacks resources, and ValueError if the command or the environment contains something that no process can
        be given.
        """
        words, variables = _encoded(order)
        fd, report_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(fd, False)
        starting = Starting(fd, report_fd)
        try:
            if order.account is None:
                self._begin_in_thread(starting, _PosixSpawn(order, self._stdin, words, variables))
            else:
                self._begin_in_copy(starting, order, order.account)
        except BaseException:
            os.close(fd)
            os.close(report_fd)
            raise
        return starting

    def is_over(self, starting: Starting, timeout_ms: int) -> bool:
        """Wait at most `timeout_ms` for the outcome of a start. Return True if it is known: the program runs, or cannot run."""
        poll = select.poll()
        poll.register(starting.fd, select.POLLIN)
        return bool(poll.poll(timeout_ms))

    def result(self, starting: Starting) -> int:
        """Return the pid of a process whose `fd` is readable, and close `fd`.

        Raises `CannotStart` if the program cannot run. A process may exist nevertheless (`starting.pid`). It ends by itself, and the caller
        must reap it.
        """
        report = os.read(starting.fd, _REPORT_BYTES)
        os.close(starting.fd)
        if starting.thread:
            os.close(starting.report_fd)
            self._in_threads -= 1
        error, _, part = report.partition(b" ")
        # The report has a second part only if the program cannot run. If a copy of the runner has become its program, the report is empty:
        # `exec` closed the writing end of the pipe.
        if not part:
            return starting.pid
        raise CannotStart(part.decode(), int(error))  # type: ignore[arg-type]

    def kill(self, starting: Starting, known: Collection[int]) -> None:
        """Kill a starting process without waiting for its end. `known` holds the pids of processes that run their program already; they
        are spared.
        """
        starting.is_unwanted = True
        pids = {starting.pid} if starting.pid else _children_of(starting.thread) - set(known)
        for pid in pids:
            # The signal is refused if the program runs by now, as another user.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _begin_in_thread(self, starting: Starting, call: _PosixSpawn) -> None:
        if self._in_threads >= self._threads:
            before = threading.stack_size(_THREAD_STACK_BYTES)
            try:
                threading.Thread(target=self._work, daemon=True).start()
            except RuntimeError as error:
                raise BlockingIOError(errno.EAGAIN, str(error)) from None
            finally:
                threading.stack_size(before)
            self._threads += 1
        self._in_threads += 1
        starting.thread = -1
        self._orders.put((starting, call))

    def _work(self) -> None:
        """Start processes in order, for ever, in a thread of its own. All signals are blocked in this thread, so that signals to the
        runner reach the thread of the runner's loop.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        me = threading.get_native_id()
        while True:
            starting, call = self._orders.get()
            starting.thread = me
            try:
                starting.pid = call.perform(starting)
            except CannotStart as error:
                starting.report(error)
            # Any other error is reported too. Without a report the job would fail only when its start timeout is over.
            except Exception:
                starting.report(CannotStart("process", errno.EINVAL))
            else:
                starting.report(None)

    def _begin_in_copy(self, starting: Starting, order: Spawn, account: Account) -> None:
        for fd in (order.stdout_fd, order.stderr_fd, order.stdin_fd):
            # The pipes or files are given to the account, because the program may open them by name, for example as /dev/stderr.
            if fd >= 0:
                os.fchown(fd, account.uid, account.gid)
        pid = os.fork()
        if not pid:
            _become(order, account, self._stdin, starting)
        os.close(starting.report_fd)
        starting.pid = pid


def _become(order: Spawn, account: Account, stdin: int, starting: Starting) -> NoReturn:
    """Turn this process, a copy of the runner, into the program of an order."""
    part: StartPart = "process"
    try:
        # From now on a signal must end this process. Through the wakeup descriptor, which this process shares with the runner, the signal
        # would also count as a signal to the runner.
        signal.set_wakeup_fd(-1)
        for each in (*_HANDLED, *_TO_DEFAULT):
            signal.signal(each, signal.SIG_DFL)
        os.setsid()
        stdin = order.stdout_fd if order.terminal else order.stdin_fd if order.stdin_fd >= 0 else stdin
        for number, fd in enumerate((stdin, order.stdout_fd, order.stderr_fd)):
            os.dup2(fd, number)
        if order.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # The descriptors are closed, because otherwise this process would hold the runner's lock and connections while it is blocked.
        os.closerange(_FIRST_OTHER_FD, starting.report_fd)
        os.closerange(starting.report_fd + 1, os.sysconf("SC_OPEN_MAX"))
        part = "limits"
        if order.cgroup_file:
            cgroup = os.open(order.cgroup_file, os.O_WRONLY)
            os.write(cgroup, b"0")
            os.close(cgroup)
        part = "account"
        os.setgroups(account.groups)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
        part = "limits"
        for which, bounds in order.limits.items():
            resource.setrlimit(which, bounds)
        part = "folder"
        os.chdir(order.working_directory)
        part = "program"
        program = _program(order)
        os.execve(program, order.argv, order.environment)
    except CannotStart as error:
        starting.report(error)
    except OSError as error:
        starting.report(_cannot_run(program, error) if part == "program" else CannotStart(part, error.errno or 0))
    except BaseException:
        starting.report(CannotStart(part, errno.EINVAL))
    finally:
        os._exit(127)


class _PosixSpawn:
    """One call of `posix_spawn`. Making the object prepares the call without accessing files of the job; `perform` accesses them."""

    def __init__(self, order: Spawn, stdin: int, words: list[bytes], variables: list[bytes]) -> None:
        self._order = order
        self._actions = ctypes.create_string_buffer(_OPAQUE_BYTES)
        library = _library()
        library.posix_spawn_file_actions_init(self._actions)
        stdin = order.stdin_fd if order.stdin_fd >= 0 else stdin
        for number, fd in enumerate((stdin, order.stdout_fd, order.stderr_fd)):
            if order.terminal and not number:
                # The first terminal that the leader of a new session opens becomes its controlling terminal.
                path = os.fsencode(order.terminal)
                library.posix_spawn_file_actions_addopen(self._actions, 0, path, os.O_RDWR, ctypes.c_uint(0))
            else:
                library.posix_spawn_file_actions_adddup2(self._actions, fd, number)
        if close_from := getattr(library, "posix_spawn_file_actions_addclosefrom_np", None):
            # The descriptors are closed, because otherwise the process would hold the runner's lock and connections while it is blocked.
            close_from(self._actions, _FIRST_OTHER_FD)
        library.posix_spawn_file_actions_addchdir_np(self._actions, os.fsencode(order.working_directory))
        self._argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        self._variables = (ctypes.c_char_p * (len(variables) + 1))(*variables, None)

    def perform(self, starting: Starting) -> int:
        """Start the process, and return its pid once the program runs. Raises `CannotStart`."""
        pid = ctypes.c_int()
        try:
            program = _program(self._order)
            if starting.is_unwanted:
                raise CannotStart("process", errno.EAGAIN)
            words = (os.fsencode(program), self._actions, _attributes(), self._argv, self._variables)
            # This is the only call here that releases Python's global lock, so that the runner's loop continues meanwhile.
            error: int = _waiting_library().posix_spawn(ctypes.byref(pid), *words)
        finally:
            _library().posix_spawn_file_actions_destroy(self._actions)
        if error:
            folder = self._order.working_directory
            raise _defect_of(folder) or _cannot_run(os.path.join(folder, program), OSError(error, ""))
        return pid.value


@cache
def _library() -> ctypes.PyDLL:
    """Return the C library for short calls, which keep Python's global lock: releasing the lock and taking it again would take longer than
    such a call.
    """
    return ctypes.PyDLL(None)


@cache
def _waiting_library() -> ctypes.CDLL:
    """Return the C library for blocking calls, which release Python's global lock, so that other threads run meanwhile."""
    return ctypes.CDLL(None)


@cache
def _attributes() -> ctypes.Array[ctypes.c_char]:
    """Return the attributes of a new process: its own session, no blocked signal, and default handling of signals that Python
    ignores.
    """
    library = _library()
    attributes, signals = ctypes.create_string_buffer(_OPAQUE_BYTES), ctypes.create_string_buffer(_OPAQUE_BYTES)
    library.posix_spawnattr_init(attributes)
    library.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID))
    library.sigemptyset(signals)
    library.posix_spawnattr_setsigmask(attributes, signals)
    for number in _TO_DEFAULT:
        library.sigaddset(signals, number)
    library.posix_spawnattr_setsigdefault(attributes, signals)
    return attributes


def _encoded(order: Spawn) -> tuple[list[bytes], list[bytes]]:
    """Return the words of the command and the variables as bytes, as `exec` takes them. Raises ValueError if `exec` cannot take them."""
    words = [os.fsencode(word) for word in order.argv]
    variables = [os.fsencode(f"{name}={value}") for name, value in order.environment.items()]
    if b"\0" in b"".join((*words, *variables, os.fsencode(order.working_directory))):
        raise ValueError("embedded null byte")
    if any(not name or "=" in name for name in order.environment):
        raise ValueError("illegal environment variable name")
    return words, variables


def _program(order: Spawn) -> str:
    """Return the path of the program, relative to the working folder. Raises `CannotStart` if no folder of PATH holds it."""
    name = order.argv[0]
    if "/" in name:
        return name
    error = CannotStart("program", errno.ENOENT)
    for folder in os.get_exec_path(order.environment):
        path = f"{folder}/{name}" if folder else f"./{name}"
        seen = path if path.startswith("/") else f"{order.working_directory}/{path}"
        if os.access(seen, os.X_OK) and os.path.isfile(seen):
            return path
        if os.path.isfile(seen):
            error = CannotStart("program", errno.EACCES)
    raise error


def _cannot_run(path: str, error: OSError) -> CannotStart:
    """Return the error for a program that `exec` refused. If `exec` did not find the program although its file exists, the file is a script
    whose interpreter is missing.
    """
    is_script = error.errno == errno.ENOENT and os.path.exists(path)
    return CannotStart("interpreter" if is_script else "program", error.errno or 0)


def _defect_of(folder: str) -> CannotStart | None:
    """Return why a folder cannot be a working folder, or None if it can."""
    try:
        os.close(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return CannotStart("folder", error.errno or 0)
    return None if os.access(folder, os.X_OK) else CannotStart("folder", errno.EACCES)


def _children_of(thread: int) -> set[int]:
    try:
        with open(f"/proc/self/task/{thread}/children") as file:
            return set(map(int, file.read().split()))
    except OSError:
        return set()
