"""The operating systems on which parts of Headrace run: client commands on Linux and macOS, all processes on Linux alone."""

from __future__ import annotations

import sys
from typing import Final

from headrace.errors import HeadraceError

#: User-facing names for values of `sys.platform`.
_NAMES: Final = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}


class NeedsLinux(HeadraceError):
    """A command or process needs Linux, and this is another system."""


def require_linux(needed_by: str) -> None:
    """Check that this system can run processes of Headrace. Raises `NeedsLinux`."""
    if sys.platform != "linux":
        raise NeedsLinux(
            f"{needed_by} needs Linux, and this is {system_name(sys.platform)}: use a host or a virtual machine with Linux. "
            "Commands that only talk to a running Headrace, such as `headrace run`, work here after `headrace login`"
        )


def require_linux_in_process(program: str) -> None:
    """End the process with one line and status 2 unless this system is Linux."""
    try:
        require_linux(program)
    except NeedsLinux as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def system_name(platform: str) -> str:
    """Return the name of a system for people."""
    return _NAMES.get(platform, platform)
