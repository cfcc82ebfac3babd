"""Python code that makes the process which runs it look like macOS, for tests of what runs there. No macOS takes part.

`sys.platform` says so, the names of Python's modules that macOS lacks are gone, and nothing below /proc or /sys can be opened.
What the system itself does otherwise on macOS is not simulated.
"""

from __future__ import annotations

__all__ = ["AS_MACOS", "ONLY_ON_LINUX"]

#: Names of Python's own modules that exist on Linux alone. A pattern ends with `*`.
ONLY_ON_LINUX = {
    "os": (
        "copy_file_range", "eventfd*", "fdatasync", "getrandom", "getres*", "*xattr", "memfd_create", "pidfd_open", "pipe2",
        "posix_fa*", "sched_*affinity", "sched_*param", "setns", "setres*", "splice", "unshare", "waitid",
        "CLONE_*", "EFD_*", "MFD_*", "O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_PATH", "O_TMPFILE", "P_PIDFD", "SCHED_BATCH",
    ),
    "resource": ("prlimit", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RT*", "RLIMIT_SIGPENDING"),
    "select": ("epoll", "EPOLL*"),
    "signal": ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGCLD", "SIGPOLL", "SIGPWR", "SIGRT*", "SIGSTKFLT"),
    "socket": ("AF_NETLINK", "AF_VSOCK", "SO_PASSCRED", "SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE"),
    "time": ("CLOCK_BOOTTIME",),
}  # fmt: skip

#: psutil chooses its parts by the real system, and so does the event loop, which takes `poll` here: there is no kqueue.
AS_MACOS = f"""
import asyncio, fnmatch, importlib, psutil, selectors, sys
selectors.DefaultSelector = selectors.PollSelector
sys.platform = "darwin"
for module, patterns in {ONLY_ON_LINUX!r}.items():
    module = importlib.import_module(module)
    for name in [name for name in dir(module) if any(fnmatch.fnmatchcase(name, each) for each in patterns)]:
        delattr(module, name)
def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "there is none on macOS", str(arguments[0]))
sys.addaudithook(refuse)
"""
