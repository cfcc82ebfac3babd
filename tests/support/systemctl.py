"""A `systemctl` for hosts that systemd does not run: it keeps what it was told, and may run what units say as systemd would.

As a program: `python systemctl.py FOLDER UNITS COMMAND …`. A file `fails` in FOLDER names a command that is refused.
With a file `runs` there the processes of units are started and signalled, else units are only noted as active.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

_LIMIT_S = 60.0


class SystemctlFolder:
    """The folder of one: `bin` for PATH, and what it was told."""

    def __init__(self, folder: Path, units: Path, *, runs: bool = False) -> None:
        self._folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        units.mkdir()
        self._program("systemctl", f'exec {sys.executable} {Path(__file__)} {folder} {units} "$@"')
        # Of a unit for a moment it keeps the options, and runs the command.
        options = f'while [ "${{1#-}}" != "$1" ]; do echo "$1" >> {folder}/transient; shift; done'
        self._program("systemd-run", f'{options}\nexec env "$(sed -n s/--setenv=//p {folder}/transient)" "$@"')
        if runs:
            (folder / "runs").touch()

    def transient(self) -> list[str]:
        """The options of `systemd-run` so far."""
        return (self._folder / "transient").read_text().splitlines()

    def told(self) -> list[str]:
        """The commands since the last look, without the questions."""
        calls = self._folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith(("cat", "show", "is-"))]

    def refuse(self, command: str) -> None:
        """Refuses a command from now on; an empty one refuses none."""
        (self._folder / "fails").write_text(command)

    def run(self, *words: str) -> None:
        """Runs a command as somebody else on the host would."""
        subprocess.run([self.bin / "systemctl", *words], check=True)

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def pid(self, unit: str) -> int:
        """The process of a unit."""
        return int((self._folder / f"{unit}.active").read_text())


def _main(folder: Path, units: Path, command: str, words: list[str]) -> int:
    with (folder / "calls").open("a") as calls:
        calls.write(" ".join([command, *words]) + "\n")
    refused = folder / "fails"
    if refused.exists() and refused.read_text() == command:
        print(f"Failed to {command}: no such luck", file=sys.stderr)
        return 1
    unit = words[-1] if words else ""
    active, enabled = folder / f"{unit}.active", folder / f"{unit}.enabled"
    if command in ("stop", "disable") and not (units / unit).exists():
        print(f"Failed to {command} {unit}: Unit {unit} not loaded.", file=sys.stderr)
        return 5
    match command:
        case "cat":
            print("\n".join(file.read_text() for file in [units / unit, *sorted((units / f"{unit}.d").glob("*.conf"))]))
        case "show" if "--property=NeedDaemonReload" in words:
            loaded = folder / f"{unit}.loaded"
            print("yes" if loaded.exists() and loaded.read_text() != (units / unit).read_text() else "no")
        case "daemon-reload":
            for file in units.glob("*.service"):
                (folder / f"{file.name}.loaded").write_text(file.read_text())
        case "is-active":
            return 0 if active.exists() else 3
        case "is-enabled":
            return 0 if enabled.exists() else 1
        case "enable":
            enabled.touch()
        case "disable":
            enabled.unlink(missing_ok=True)
        case "start":
            _start(folder, units, unit)
        case "stop":
            _stop(active, signal.SIGTERM)
        case "restart":
            _stop(active, signal.Signals[_setting(units, unit, "RestartKillSignal") or "SIGTERM"])
            _start(folder, units, unit)
    return 0


def _setting(units: Path, unit: str, name: str) -> str:
    lines = (units / unit).read_text().splitlines()
    return next((line.partition("=")[2] for line in lines if line.startswith(f"{name}=")), "")


def _start(folder: Path, units: Path, unit: str) -> None:
    active = folder / f"{unit}.active"
    if active.exists():
        return
    for other in _setting(units, unit, "Wants").split():
        if other.endswith(".service"):
            _start(folder, units, other)
    pid = 0
    if (folder / "runs").exists():
        command = shlex.split(_setting(units, unit, "ExecStart").replace("$$", "$").replace("%%", "%"))
        own = dict([_setting(units, unit, "Environment").split("=", 1)]) if _setting(units, unit, "Environment") else {}
        with (folder / f"{unit}.log").open("ab") as log:
            started = subprocess.Popen(
                command, env={"PATH": "/usr/bin:/bin", **own}, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        pid = started.pid
        started.returncode = 0
    active.write_text(str(pid))


def _stop(active: Path, number: signal.Signals) -> None:
    pid = int(active.read_text()) if active.exists() else 0
    active.unlink(missing_ok=True)
    if not pid or not psutil.pid_exists(pid):
        return
    process = psutil.Process(pid)
    os.kill(pid, number)
    until = time.monotonic() + _LIMIT_S
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]))
