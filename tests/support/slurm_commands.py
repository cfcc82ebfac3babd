"""Commands of Slurm that `headrace slurm install` wrote, in front of the PATH, beside a `headrace up`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.headrace_up import Up

__all__ = ["Slurm"]

_LIMIT_S = 300.0


class Slurm:
    """A folder with the commands, and a working folder of a person."""

    def __init__(self, up: Up, folder: Path) -> None:
        self.up = up
        self.commands = folder / "bin"
        self.folder = folder / "work"
        self.folder.mkdir()
        up.run("slurm", "install", str(self.commands))
        path = f"{self.commands}:{os.environ['PATH']}"
        # Scripts that begin with `bash -l` get the PATH of the profile.
        (folder / ".profile").write_text(f"PATH={self.commands}:$PATH\n")
        own = {"PATH": path, "PWD": str(self.folder), "USER": "ada", "HOME": str(folder)}
        self.environment = up.environment | own

    def run(self, *words: str, expect: int | None = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One command to its end; its exit status is checked unless `expect` is None."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if expect is not None:
            assert done.returncode == expect, f"{words}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def say(self, *words: str) -> str:
        """What a command prints."""
        return self.run(*words).stdout.strip()

    def script(self, name: str, text: str) -> str:
        """Write a batch script, and return its name."""
        (self.folder / name).write_text(f"#!/bin/sh\n{text}")
        return name
