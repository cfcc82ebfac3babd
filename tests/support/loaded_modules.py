"""The modules that a command of `headrace` loads: a person waits for each of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

_COMMAND = """
import atexit, gc, sys
from headrace_cli.__main__ import main
atexit.register(lambda: print(gc.get_freeze_count(), *sys.modules, file=sys.stderr))
sys.argv[1:] = {words!r}
main()
"""
#: Loaded by the interpreter itself: where an environment has setuptools, and where a distribution has its own beginning.
_OF_THE_INTERPRETER = {"_distutils_hack", "_virtualenv", "__main__", "__mp_main__", "sitecustomize"}


class Loaded(NamedTuple):
    """What one command printed and loaded."""

    printed: str
    #: Objects that the collector passes by when the process ends.
    frozen_at_end: int
    modules: frozenset[str]

    @property
    def libraries(self) -> set[str]:
        """Packages that are neither the project's nor come with Python."""
        found = {name.partition(".")[0] for name in self.modules if not name.startswith(("headrace", "__editable"))}
        return found - sys.stdlib_module_names - _OF_THE_INTERPRETER

    @property
    def own(self) -> set[str]:
        """The project's modules."""
        return {name for name in self.modules if name.startswith("headrace")}


def loaded_by(*words: str, environment: Mapping[str, str] | None = None) -> Loaded:
    """Runs a command in an interpreter of its own."""
    command = [sys.executable, "-c", _COMMAND.format(words=list(words))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(environment or os.environ))
    frozen, *modules = done.stderr.splitlines()[-1].split()
    return Loaded(done.stdout, int(frozen), frozenset(modules))
