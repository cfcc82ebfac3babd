"""A bash in a terminal of its own, typed into as a person does."""

from __future__ import annotations

import os
import pty
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

__all__ = ["BashTerminal"]

_PROMPT = "ready-for-a-line> "


class BashTerminal:
    """Started by `with`. `setup` is run before the first prompt."""

    def __init__(self, setup: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._file = folder / "bashrc"
        self._file.write_text(
            f"bind 'set bell-style none'\nbind 'set enable-bracketed-paste off'\n{setup}\nPS1='{_PROMPT}'\n"
        )
        self._folder = folder
        self._environment = {**environment, "TERM": "dumb", "HISTFILE": "/dev/null", "COLUMNS": "200"}
        self._pid = 0
        self._terminal = -1

    def __enter__(self) -> BashTerminal:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:  # pragma: no cover
            os.chdir(self._folder)
            words = ["bash", "--noprofile", "--rcfile", str(self._file), "-i"]
            os.execvpe("bash", words, self._environment)
        self.read_until(_PROMPT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def line(self, typed: str) -> str:
        """Types a line, Tab as `\\t`, ends it, and returns what stood in the terminal when it had been carried out."""
        os.write(self._terminal, typed.encode() + b"\n")
        return self.read_until(_PROMPT)

    def read_until(self, text: str) -> str:
        """All that appears up to and with this text."""
        seen = b""
        while not seen.endswith(text.encode()):
            seen += os.read(self._terminal, 65_536)
        return seen.decode().replace("\r\n", "\n").removesuffix(text)
