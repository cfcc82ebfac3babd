"""Requests to this host's systemd, by `systemctl`."""

from __future__ import annotations

import subprocess

from headrace.errors import HeadraceError


class NoSystemd(HeadraceError):
    """This host is not run by systemd, or systemd refused the request."""


def systemctl(*words: str) -> str:
    """Run a command that must succeed, and return its output. Raises `NoSystemd`."""
    done = _run(words)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise NoSystemd(f"`systemctl {' '.join(words)}`: {said}")
    return done.stdout.strip()


def is_true(*words: str) -> bool:
    """True if this `systemctl` command, such as `is-active`, answers yes. Raises `NoSystemd`."""
    return _run((*words[:1], "--quiet", *words[1:])).returncode == 0


def is_outdated(unit: str) -> bool:
    """True if the unit that systemd has loaded differs from its file. Raises `NoSystemd`."""
    return systemctl("show", "--property=NeedDaemonReload", "--value", unit) == "yes"


def _run(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["systemctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise NoSystemd(
            f"systemctl cannot be run ({error.strerror}): only hosts with systemd have units; on other hosts "
            "`headrace agent join --no-start` and `headrace cluster install --dry-run` print the commands for their service manager"
        ) from None
